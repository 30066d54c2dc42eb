//! Pictures made smaller, each new pixel the mean of those that it stands for.

/// The largest picture that may leave or be shown: no wider and no higher than this.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Bound {
    /// Pixels across.
    pub(crate) width: u32,
    /// Pixels down.
    pub(crate) height: u32,
}

impl Bound {
    /// Larger than any picture.
    pub(crate) const NONE: Self = Self { width: u32::MAX, height: u32::MAX };

    /// Whether a picture is within it as it is.
    pub(crate) const fn holds(self, width: u32, height: u32) -> bool {
        width <= self.width && height <= self.height
    }

    /// The largest size of the same shape that is within it.
    pub(super) fn fit(self, width: u32, height: u32) -> (u32, u32) {
        let (wide, high) = (u64::from(width), u64::from(height));
        let (most_wide, most_high) = (u64::from(self.width), u64::from(self.height));
        let (wide, high) = if wide * most_high >= high * most_wide {
            (most_wide, high * most_wide / wide.max(1))
        } else {
            (wide * most_high / high.max(1), most_high)
        };
        let side = |side: u64| u32::try_from(side.max(1)).unwrap_or(u32::MAX);
        (side(wide).min(width), side(high).min(height))
    }
}

/// RGB pixels made small enough for `bound`; those that are within it stay as they are.
pub(crate) fn within(rgb: Vec<u8>, width: u32, height: u32, bound: Bound) -> (Vec<u8>, u32, u32) {
    if bound.holds(width, height) {
        return (rgb, width, height);
    }
    let (wide, high) = bound.fit(width, height);
    (shrink(&rgb, (width, height), (wide, high)), wide, high)
}

/// To a size that is no larger in either direction.
pub(super) fn shrink(rgb: &[u8], from: (u32, u32), to: (u32, u32)) -> Vec<u8> {
    let side = |side: u32| usize::try_from(side).unwrap_or(0);
    let (width, height, wide, high) = (side(from.0), side(from.1), side(to.0), side(to.1));
    let mut small = Vec::with_capacity(wide * high * 3);
    let mut sums = vec![[0_u32; 3]; wide];
    for y in 0..high {
        let rows = y * height / high..(y + 1) * height / high;
        sums.fill([0; 3]);
        for row in rows.clone() {
            let row = rgb.get(row * width * 3..(row + 1) * width * 3).unwrap_or_default();
            for (x, sum) in sums.iter_mut().enumerate() {
                let pixels = row.get(x * width / wide * 3..(x + 1) * width / wide * 3).unwrap_or_default();
                for pixel in pixels.chunks_exact(3) {
                    for (sum, level) in sum.iter_mut().zip(pixel) {
                        *sum += u32::from(*level);
                    }
                }
            }
        }
        for (x, sum) in sums.iter().enumerate() {
            let count = rows.len() * ((x + 1) * width / wide - x * width / wide);
            let count = u32::try_from(count.max(1)).unwrap_or(u32::MAX);
            small.extend(sum.map(|sum| u8::try_from(sum / count).unwrap_or(u8::MAX)));
        }
    }
    small
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_picture_keeps_its_shape_when_it_is_made_to_fit() {
        let bound = |width, height| Bound { width, height };
        let rows = [
            ((4000, 3000), bound(1920, 1080), (1440, 1080)),
            ((3840, 2160), bound(1920, 1080), (1920, 1080)),
            ((1280, 720), bound(640, 640), (640, 360)),
            ((1080, 1920), bound(1920, 1080), (607, 1080)),
            ((9000, 2), bound(100, 100), (100, 1)),
            ((640, 480), bound(640, 480), (640, 480)),
        ];
        for ((width, height), bound, wanted) in rows {
            assert_eq!(bound.fit(width, height), wanted, "{width} x {height} within {bound:?}");
        }
    }

    #[test]
    fn each_pixel_is_the_mean_of_those_that_it_stands_for() {
        let rgb = [[0, 4, 8], [4, 8, 12], [90; 3], [8, 12, 16], [12, 16, 20], [90; 3]].concat();
        assert_eq!(shrink(&rgb, (3, 2), (1, 1)), [34, 36, 39], "all six");
        assert_eq!(shrink(&rgb, (3, 2), (3, 1)), [[4, 8, 12], [8, 12, 16], [90; 3]].concat());
        let same = within(rgb.clone(), 3, 2, Bound { width: 3, height: 2 });
        assert_eq!(same, (rgb, 3, 2));
    }

    #[test]
    fn no_pixel_is_lost_at_the_edges() {
        for width in [1_u32, 2, 7, 127] {
            for to in 1..=width.min(9) {
                let rgb = vec![77; usize::try_from(width).unwrap_or(0) * 5 * 3];
                let small = shrink(&rgb, (width, 5), (to, 2));
                assert_eq!(small, vec![77; usize::try_from(to).unwrap_or(0) * 2 * 3], "{width} to {to}");
            }
        }
    }
}
