//! What the keeper wrote, and where it lies.
//!
//! Owns the settings (file, environment, command line), the folders they live in, and the rules for files that only one person may
//! read. Called by both programs at their edge. Refuses unknown keys, loose permissions and symbolic links in place of secrets.
//! Knows no grants: what a device may do is never a setting.

pub mod digest;
pub mod folder;
pub mod gpio;
pub mod keys;
pub mod manifest;
pub mod places;
pub mod safe;
pub mod settings;
pub mod usb_card;

pub use gpio::{GpioLine, LineName};
pub use places::{Flags, Places};
pub use settings::{
    AudioSettings, CameraSettings, DeviceSettings, DirectSettings, HandlerSettings, KeeperSettings, LimitSettings,
    LinkSettings, LogFormat, LogSettings, NoQuietHours, PictureSize, QuietHours, QuietSettings, Scheme, Settings,
    SettingsError, SignCarrier, SignSettings, SpeechSettings,
};
pub use usb_card::{UsbCard, UsbKind, UsbMark};
