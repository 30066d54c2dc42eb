//! What a picture, or its absence, says of the camera. The picture is weighed and let go.

use std::path::Path;
use std::time::Duration;

use config::CameraSettings;
use wire::Object;
use wire::text::base64_decode;

use crate::doctor::look::groups::nodes;
use crate::doctor::{Finding, Part};

/// Whether this machine has anything that could be a camera.
pub(super) fn any() -> bool {
    nodes(Path::new("/dev"), false).iter().any(|node| is_camera(&node.path))
}

fn is_camera(path: &Path) -> bool {
    path.file_name().and_then(|name| name.to_str()).is_some_and(|name| name.starts_with("video"))
}

pub(super) fn judge(
    settings: &CameraSettings,
    (simulated, user): (bool, &str),
    told: Result<Object, String>,
    took: Duration,
) -> Finding {
    let name = match (&settings.device, simulated) {
        (_, true) => "the simulated camera",
        (Some(device), false) => device.as_str(),
        (None, false) => "the first camera",
    };
    let picture = told.and_then(|value| {
        let data = value.get("data").and_then(serde_json::Value::as_str).unwrap_or_default();
        base64_decode(data).map_err(|error| format!("it gave no picture: {error}"))
    });
    match picture {
        Ok(file) if !file.is_empty() => {
            let what = format!(
                "{name} took a picture of {} KiB in {} ms, under the lit sign; it was thrown away",
                file.len().div_ceil(1024),
                took.as_millis()
            );
            Finding::works(Part::Camera, what)
        }
        Ok(_) => broken("it gave an empty picture", user),
        Err(why) => broken(&why, user),
    }
}

/// The fault, and the command for it.
fn broken(why: &str, user: &str) -> Finding {
    let (what, command) = match why.split_once("; add its user to the group video") {
        Some((what, _)) => return Finding::broken(Part::Camera, what, format!("usermod -aG video {user}")),
        None if why.contains("in-use sign") => (why, "latchkeyd doctor sign led gpio display"),
        None if why.contains("another program uses it") => (why, "fuser -v /dev/video*"),
        None if why.contains("not connected") || why.contains("no camera") || why.contains("not a camera") => {
            (why, "latchkeyd hardware")
        }
        None if why.contains("too long to work through") => (why, "latchkeyd config show"),
        None if why.contains("hangs in") || why.contains("crashed") => (why, "systemctl restart latchkeyd"),
        None if why.contains("at this moment") => (why, "latchkeyd doctor camera"),
        None => (why, "journalctl --dmesg --lines=50"),
    };
    Finding::broken(Part::Camera, what, command)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::Verdict;

    #[test]
    fn a_picture_is_weighed_and_each_fault_has_its_command() {
        let settings = CameraSettings {
            device: Some("usb-A-index0".to_owned()),
            size: config::PictureSize { width: 1280, height: 720 },
            largest: config::PictureSize { width: 1920, height: 1080 },
        };
        let mut picture = Object::new();
        picture.insert("data", wire::text::base64_encode(&[0; 3000]));
        let took = Duration::from_millis(420);
        let works = judge(&settings, (false, "latchkey"), Ok(picture), took);
        assert_eq!(
            (works.verdict, works.what.as_str()),
            (Verdict::Works, "usb-A-index0 took a picture of 3 KiB in 420 ms, under the lit sign; it was thrown away")
        );
        assert_eq!(judge(&settings, (false, "latchkey"), Ok(Object::new()), took).verdict, Verdict::Broken);
        let rows = [
            ("this program may not open /dev/video0; add its user to the group video", "usermod -aG video latchkey"),
            ("the in-use sign (LED a) cannot be lit: there is no such LED", "latchkeyd doctor sign led gpio display"),
            ("the camera is busy: another program uses it", "fuser -v /dev/video*"),
            ("the camera usb-A-index0 is not connected", "latchkeyd hardware"),
            ("/dev/null is not a camera that captures video", "latchkeyd hardware"),
            ("a former capture still hangs in the camera's driver", "systemctl restart latchkeyd"),
            ("an agent captures at this moment; try again when it is done", "latchkeyd doctor camera"),
            ("the camera is silent: it sends no pictures", "journalctl --dmesg --lines=50"),
        ];
        for (why, command) in rows {
            let told = judge(&settings, (false, "latchkey"), Err(why.to_owned()), took);
            assert_eq!((told.verdict, told.mend.as_deref()), (Verdict::Broken, Some(command)), "{why}");
            assert!(why.starts_with(&told.what));
        }
    }
}
