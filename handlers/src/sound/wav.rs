//! A sound as a file: WAV, one channel, 16 bit.

use super::Pcm;

/// Bytes before the first sample.
pub(super) const HEADER_BYTES: usize = 44;

impl Pcm {
    /// The whole file. A sound of more than 4 GiB does not come up here.
    pub fn to_wav(&self) -> Vec<u8> {
        let data = u32::try_from(self.samples.len().saturating_mul(2)).unwrap_or(u32::MAX);
        let mut file = Vec::with_capacity(HEADER_BYTES + self.samples.len() * 2);
        file.extend_from_slice(b"RIFF");
        file.extend_from_slice(&data.saturating_add(36).to_le_bytes());
        file.extend_from_slice(b"WAVEfmt ");
        file.extend_from_slice(&16_u32.to_le_bytes());
        file.extend_from_slice(&1_u16.to_le_bytes()); // whole numbers, not compressed
        file.extend_from_slice(&1_u16.to_le_bytes()); // channels
        file.extend_from_slice(&self.rate_hz.to_le_bytes());
        file.extend_from_slice(&self.rate_hz.saturating_mul(2).to_le_bytes()); // bytes a second
        file.extend_from_slice(&2_u16.to_le_bytes()); // bytes a frame
        file.extend_from_slice(&16_u16.to_le_bytes()); // bits a sample
        file.extend_from_slice(b"data");
        file.extend_from_slice(&data.to_le_bytes());
        for sample in &self.samples {
            file.extend_from_slice(&sample.to_le_bytes());
        }
        file
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_is_what_every_player_reads() {
        let file = Pcm { rate_hz: 16_000, samples: vec![1, -2, i16::MAX] }.to_wav();
        assert_eq!(file.len(), HEADER_BYTES + 6);
        let header = b"RIFF\x2a\0\0\0WAVEfmt \x10\0\0\0\x01\0\x01\0\x80\x3e\0\0\0\x7d\0\0\x02\0\x10\0data\x06\0\0\0";
        assert_eq!(&file[..HEADER_BYTES], header);
        assert_eq!(&file[HEADER_BYTES..], [1, 0, 0xfe, 0xff, 0xff, 0x7f]);
    }
}
