//! What a device offers: declarations of capabilities, and the signed `registration` value (section 6).
//!
//! Owns: the built-in declarations, and the form of a registration on both sides. Called by: handlers (their declaration),
//! the gate (bounds, effect, grant), controllers (what they may ask for). Refuses: descriptions and declarations beyond
//! their limits, unbounded arguments, members of the wrong form; unknown members of a registration are ignored.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use serde::ser::SerializeMap as _;
use serde::{Serialize, Serializer};
use serde_json::json;

use crate::bounds::{Arguments, Bounds, DESCRIPTION_BYTES_MAX, DeclarationError};
use crate::json::{MemberError, Members, Object, Value};
use crate::keys::PublicKey;
use crate::text::{Agent, CapabilityName, GrantName, TextError, serde_as_text};

/// The protocol this device speaks.
pub const PROTOCOL: &str = "1";
/// All declarations of a device together: a registration has to fit a result.
pub const DECLARATIONS_BYTES_MAX: usize = 1024 * 1024;
/// Longest time-out of a custom capability: longer work wants a lease of its own.
pub const CUSTOM_TIMEOUT_MAX: Duration = Duration::from_secs(60);
/// Longest text that `display.text` shows: what fits a screen several times.
pub const DISPLAY_TEXT_BYTES_MAX: usize = 4_096;
/// Longest text that `speaker.say` says: half a minute of speech.
pub const SPEAKER_TEXT_BYTES_MAX: usize = 500;
/// Longest sound that `microphone.listen` takes: with base64 it fits a result, and a room is not listened to for longer by one call.
pub const LISTEN_SECONDS_MAX: u64 = 15;
/// What `microphone.listen` may take beyond the seconds asked for: opening the card, and its first sound.
const LISTEN_MARGIN: Duration = Duration::from_secs(5);
/// Largest picture that `display.image` takes, decoded: with base64 it fits a request body.
pub const DISPLAY_IMAGE_BYTES_MAX: usize = 262_144;

/// A closed set of lower-case words on the wire.
macro_rules! words {
    ($(#[$doc:meta])* $name:ident { $($(#[$variant_doc:meta])* $variant:ident = $word:literal,)* }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum $name {
            $($(#[$variant_doc])* $variant,)*
        }

        impl $name {
            /// The word on the wire.
            #[must_use]
            pub const fn as_str(self) -> &'static str {
                match self {
                    $(Self::$variant => $word,)*
                }
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.pad(self.as_str())
            }
        }

        impl FromStr for $name {
            type Err = TextError;

            fn from_str(text: &str) -> Result<Self, TextError> {
                match text {
                    $($word => Ok(Self::$variant),)*
                    _ => Err(TextError::Word),
                }
            }
        }

        serde_as_text!($name);
    };
}

words! {
    /// What running a capability does to the world.
    Effect {
        /// Nothing stays changed; a repeat runs anew.
        Read = "read",
        /// Something is changed; it never runs twice for one id.
        Change = "change",
    }
}
words! {
    /// When a capability may run.
    Activation {
        /// Always.
        Any = "any",
        /// Only while the device is the agent's active one.
        Active = "active",
    }
}
words! {
    /// How a capability fares.
    CapabilityState {
        /// It would run now.
        Ready = "ready",
        /// It is being restarted.
        Degraded = "degraded",
        /// It was given up, or its hardware is not there.
        Unavailable = "unavailable",
    }
}

/// A time-out that follows from an argument: so many seconds as it says, and so much more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AskedTime {
    /// The integer argument that says how many seconds the work itself lasts.
    pub seconds: &'static str,
    /// What comes on top.
    pub margin: Duration,
}

/// What a capability is: its name, what it takes, what it does, what stands before it.
#[derive(Debug, Clone, PartialEq)]
pub struct Declaration {
    /// Its name.
    pub name: CapabilityName,
    /// What it does, for people and models; at most 200 bytes.
    pub description: String,
    /// What arguments it takes.
    pub bounds: Bounds,
    /// What it does to the world.
    pub effect: Effect,
    /// When it may run.
    pub activation: Activation,
    /// The grant it needs; `None` when ownership alone suffices.
    pub grant: Option<GrantName>,
    /// Whether it captures, and so needs a working sign.
    pub captures: bool,
    /// When its work is cut off at the latest.
    pub timeout: Duration,
    /// How the time-out of one call follows from its arguments; `None` where every call has `timeout`. A registration carries
    /// `timeout` alone.
    pub asked_time: Option<AskedTime>,
}

impl Declaration {
    /// When the work of a call with these arguments is cut off: never later than `timeout`.
    #[must_use]
    pub fn timeout_of(&self, arguments: &Arguments) -> Duration {
        let asked = self.asked_time.and_then(|asked| {
            let seconds = u64::try_from(arguments.integer(asked.seconds)?).ok()?;
            Some(Duration::from_secs(seconds).saturating_add(asked.margin))
        });
        asked.map_or(self.timeout, |asked| asked.min(self.timeout))
    }

    /// `device.health`: ownership alone, at any time.
    #[must_use]
    pub fn device_health() -> Self {
        Self {
            grant: None,
            activation: Activation::Any,
            effect: Effect::Read,
            ..Self::built_in("device.health", "State of the device and of each capability", Bounds::none(), 2)
        }
    }

    /// `camera.snapshot`: one picture.
    #[must_use]
    pub fn camera_snapshot() -> Self {
        Self {
            effect: Effect::Read,
            captures: true,
            ..Self::built_in("camera.snapshot", "One picture from the camera, as JPEG", Bounds::none(), 10)
        }
    }

    /// `microphone.listen`: so many seconds of sound.
    #[must_use]
    pub fn microphone_listen() -> Self {
        let bounds = built_in_bounds(json!({
            "type": "object",
            "properties": {
                "seconds": {
                    "type": "integer", "minimum": 1, "maximum": LISTEN_SECONDS_MAX, "description": "how long to listen",
                },
            },
            "required": ["seconds"],
            "additionalProperties": false,
        }));
        let longest_s = LISTEN_SECONDS_MAX + LISTEN_MARGIN.as_secs();
        Self {
            effect: Effect::Read,
            captures: true,
            asked_time: Some(AskedTime { seconds: "seconds", margin: LISTEN_MARGIN }),
            ..Self::built_in("microphone.listen", "Sound from the microphone, as WAV", bounds, longest_s)
        }
    }

    /// `display.text`: text on the screen.
    #[must_use]
    pub fn display_text() -> Self {
        let bounds = built_in_bounds(json!({
            "type": "object",
            "properties": {
                "text": {"type": "string", "maxLength": DISPLAY_TEXT_BYTES_MAX, "description": "the text to show"},
            },
            "required": ["text"],
            "additionalProperties": false,
        }));
        Self::built_in("display.text", "Shows a text on the screen", bounds, 5)
    }

    /// `display.image`: a picture on the screen.
    #[must_use]
    pub fn display_image() -> Self {
        let bounds = built_in_bounds(json!({
            "type": "object",
            "properties": {
                "mime": {"type": "string", "maxLength": 10, "enum": ["image/jpeg", "image/png"], "description": "type of the picture"},
                "data": {
                    "type": "string",
                    "maxLength": DISPLAY_IMAGE_BYTES_MAX.div_ceil(3) * 4,
                    "contentEncoding": "base64",
                    "x-max-decoded-bytes": DISPLAY_IMAGE_BYTES_MAX,
                    "description": "the picture in standard base64",
                },
            },
            "required": ["mime", "data"],
            "additionalProperties": false,
        }));
        Self::built_in("display.image", "Shows a picture on the screen", bounds, 5)
    }

    /// `speaker.say`: a text, said aloud.
    #[must_use]
    pub fn speaker_say() -> Self {
        let bounds = built_in_bounds(json!({
            "type": "object",
            "properties": {
                "text": {"type": "string", "maxLength": SPEAKER_TEXT_BYTES_MAX, "description": "the text to say"},
            },
            "required": ["text"],
            "additionalProperties": false,
        }));
        Self::built_in("speaker.say", "Says a text aloud", bounds, 60)
    }

    /// What most built-in capabilities have in common.
    #[expect(clippy::expect_used, reason = "the names stand in this file and a test reads each of them")]
    fn built_in(name: &str, description: &str, bounds: Bounds, timeout_s: u64) -> Self {
        let name: CapabilityName = name.parse().expect("a capability name");
        Self {
            grant: Some(name.grant()),
            name,
            description: description.to_owned(),
            bounds,
            effect: Effect::Change,
            activation: Activation::Active,
            captures: false,
            timeout: Duration::from_secs(timeout_s),
            asked_time: None,
        }
    }

    /// The same declaration, once its description and time-out are within their limits.
    ///
    /// # Errors
    /// [`DeclarationError`] naming what is too large.
    pub fn within_limits(self) -> Result<Self, DeclarationError> {
        let got = self.description.len();
        if got > DESCRIPTION_BYTES_MAX {
            return Err(DeclarationError::TooLarge { what: "description", max: DESCRIPTION_BYTES_MAX, got });
        }
        if self.name.is_custom() && self.timeout > CUSTOM_TIMEOUT_MAX {
            return Err(member(MemberError::new("timeout_ms", "at most 60000 for a custom capability")));
        }
        Ok(self)
    }
}

#[expect(clippy::expect_used, reason = "the bounds stand in this file and a test reads each of them")]
fn built_in_bounds(declared: Value) -> Bounds {
    match declared {
        Value::Object(map) => Bounds::parse(Object::from(map)).expect("bounds within their own rules"),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => Bounds::none(),
    }
}

/// A grant as a registration shows it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Grant {
    /// Its name.
    pub name: GrantName,
    /// Whether the keeper has turned it on.
    pub on: bool,
}

/// Who owns a device.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Owner {
    /// The agent's address, a label.
    pub agent: Agent,
    /// The key that the device obeys.
    pub key: PublicKey,
}

/// A capability as a device offers it now.
#[derive(Debug, Clone, PartialEq)]
pub struct Offered {
    /// What it is.
    pub declaration: Declaration,
    /// Whether its grant is on; true where none is needed.
    pub grant_on: bool,
    /// How it fares.
    pub state: CapabilityState,
}

impl Offered {
    /// Its grant, if it needs one.
    #[must_use]
    pub fn grant(&self) -> Option<Grant> {
        self.declaration.grant.clone().map(|name| Grant { name, on: self.grant_on })
    }

    fn parse(value: Value) -> Result<Self, DeclarationError> {
        let mut members = object_members("capabilities[]", value)?;
        let name: CapabilityName = members.text("name").map_err(member)?;
        let bounds = Bounds::parse(members.object("arguments").map_err(member)?)?;
        let grant = match members.take("grant") {
            Some(Value::Null) => None,
            Some(value) => {
                let mut grant = object_members("grant", value)?;
                Some(Grant { name: grant.text("name").map_err(member)?, on: grant.boolean("on").map_err(member)? })
            }
            None => return Err(member(MemberError::new("grant", "is missing"))),
        };
        let declaration = Declaration {
            name,
            description: members.text("description").map_err(member)?,
            bounds,
            effect: members.text("effect").map_err(member)?,
            activation: members.text("activation").map_err(member)?,
            grant: grant.as_ref().map(|grant| grant.name.clone()),
            captures: members.boolean("captures").map_err(member)?,
            timeout: Duration::from_millis(members.integer("timeout_ms").map_err(member)?),
            asked_time: None,
        };
        Ok(Self {
            declaration: declaration.within_limits()?,
            grant_on: grant.is_none_or(|grant| grant.on),
            state: members.text("state").map_err(member)?,
        })
    }
}

impl Serialize for Offered {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let declaration = &self.declaration;
        let timeout_ms = u64::try_from(declaration.timeout.as_millis()).unwrap_or(u64::MAX);
        let mut map = serializer.serialize_map(Some(9))?;
        map.serialize_entry("name", &declaration.name)?;
        map.serialize_entry("description", &declaration.description)?;
        map.serialize_entry("arguments", &declaration.bounds)?;
        map.serialize_entry("effect", &declaration.effect)?;
        map.serialize_entry("activation", &declaration.activation)?;
        map.serialize_entry("grant", &self.grant())?;
        map.serialize_entry("captures", &declaration.captures)?;
        map.serialize_entry("timeout_ms", &timeout_ms)?;
        map.serialize_entry("state", &self.state)?;
        map.end()
    }
}

/// The value that answers `registration`: what the device is, whose it is, and what it offers.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Registration {
    /// The device's key.
    pub device: PublicKey,
    /// What the keeper calls the device.
    pub name: String,
    /// The protocol it speaks, [`PROTOCOL`].
    pub protocol: String,
    /// Its owner, if it has one.
    pub owner: Option<Owner>,
    /// Whether it is the agent's active device.
    pub active: bool,
    /// Until when, as wall time in milliseconds: a label.
    pub active_until: Option<u64>,
    /// Whether its hardware is simulated.
    pub simulated: bool,
    /// What it offers.
    pub capabilities: Vec<Offered>,
}

impl Registration {
    /// Reads a registration; members it does not know are ignored (section 5).
    ///
    /// # Errors
    /// [`DeclarationError`] naming the member that is missing, wrong or too large.
    pub fn parse(value: Object) -> Result<Self, DeclarationError> {
        let mut members = Members::new(value);
        let owner = match members.take("owner") {
            None | Some(Value::Null) => None,
            Some(value) => {
                let mut owner = object_members("owner", value)?;
                Some(Owner { agent: owner.text("agent").map_err(member)?, key: owner.text("key").map_err(member)? })
            }
        };
        let active_until = match members.take("active_until") {
            None | Some(Value::Null) => None,
            Some(value) => {
                Some(value.as_u64().ok_or_else(|| member(MemberError::new("active_until", "must be a time or null")))?)
            }
        };
        Ok(Self {
            device: members.text("device").map_err(member)?,
            name: members.text("name").map_err(member)?,
            protocol: members.text("protocol").map_err(member)?,
            owner,
            active: members.boolean("active").map_err(member)?,
            active_until,
            simulated: members.boolean("simulated").map_err(member)?,
            capabilities: capabilities(members.take("capabilities"))?,
        })
    }

    /// The same as a JSON object, for a result.
    #[must_use]
    pub fn to_object(&self) -> Object {
        match serde_json::to_value(self) {
            Ok(Value::Object(map)) => Object::from(map),
            Ok(_) | Err(_) => Object::new(), // a struct with text keys always becomes an object
        }
    }

    /// The capability of that name, if it is offered.
    #[must_use]
    pub fn capability(&self, name: &CapabilityName) -> Option<&Offered> {
        self.capabilities.iter().find(|offered| offered.declaration.name == *name)
    }
}

fn capabilities(value: Option<Value>) -> Result<Vec<Offered>, DeclarationError> {
    let wrong = |reason| member(MemberError::new("capabilities", reason));
    let Some(Value::Array(items)) = value else { return Err(wrong("must be a list")) };
    let mut offered: Vec<Offered> = Vec::with_capacity(items.len());
    for item in items {
        let next = Offered::parse(item)?;
        if offered.iter().any(|other| other.declaration.name == next.declaration.name) {
            return Err(wrong("names a capability twice"));
        }
        offered.push(next);
    }
    Ok(offered)
}

fn object_members(name: &str, value: Value) -> Result<Members, DeclarationError> {
    match value {
        Value::Object(map) => Ok(Members::new(Object::from(map))),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => {
            Err(member(MemberError::new(name, "must be an object")))
        }
    }
}

fn member(error: MemberError) -> DeclarationError {
    DeclarationError::Member { member: error.member, reason: error.reason }
}
