//! Servers that a handler may send requests to: scheme, host and port, exactly.
//!
//! Refuses everything else that a URL may have, and numbers that only some resolvers take for an address.

use std::fmt;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

use super::Origin;
use crate::settings::is_host_name;

/// Not scheme, host and port of a server.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{given:?} {reason}; a server is written \"http://192.168.1.20:80\" or \"https://lamp.local\"")]
pub struct OriginError {
    given: String,
    reason: &'static str,
}

impl FromStr for Origin {
    type Err = OriginError;

    fn from_str(text: &str) -> Result<Self, OriginError> {
        split(text).map_err(|reason| OriginError { given: text.to_owned(), reason })
    }
}

fn split(text: &str) -> Result<Origin, &'static str> {
    let (tls, rest) = match text.split_once("://") {
        Some(("http", rest)) => (false, rest),
        Some(("https", rest)) => (true, rest),
        Some(_) | None => return Err("begins neither with http:// nor with https://"),
    };
    if let Some(stranger) = rest.find(['/', '?', '#', '\\', '@']) {
        return Err(match rest.as_bytes().get(stranger) {
            Some(b'@') => "names a user",
            Some(b'?') => "has a query",
            Some(b'#') => "has a fragment",
            Some(_) | None => "has a path",
        });
    }
    let (host, port) = match rest.strip_prefix('[') {
        Some(bracketed) => {
            let (address, behind) = bracketed.split_once(']').ok_or("has no closing bracket")?;
            let address: Ipv6Addr = address.parse().map_err(|_| "has no IPv6 address in its brackets")?;
            let port = match behind.strip_prefix(':') {
                Some(port) => Some(port),
                None if behind.is_empty() => None,
                None => return Err("has something between its address and its port"),
            };
            (address.to_string(), port)
        }
        None => {
            let (host, port) = rest.split_once(':').map_or((rest, None), |(host, port)| (host, Some(port)));
            (named(host)?, port)
        }
    };
    let port = match port {
        Some(port) => number(port).ok_or("has no port from 1 to 65535 behind its colon")?,
        None if tls => 443,
        None => 80,
    };
    Ok(Origin { tls, host, port })
}

/// A name in lower case, or an IPv4 address. What ends in a number and is no address (`127.1`, `0x7f.1`, `2130706433`) is refused:
/// some resolvers read it as one.
fn named(host: &str) -> Result<String, &'static str> {
    if let Ok(address) = host.parse::<Ipv4Addr>() {
        return Ok(address.to_string());
    }
    let last = host.rsplit('.').next().unwrap_or(host).to_ascii_lowercase();
    let number = last.bytes().all(|byte| byte.is_ascii_digit()) || last.starts_with("0x");
    if !is_host_name(host) || number {
        return Err("has no host name and no IP address");
    }
    Ok(host.to_ascii_lowercase())
}

/// A port as it is usually written: no sign, no zero in front.
fn number(text: &str) -> Option<u16> {
    let usual = text.bytes().all(|byte| byte.is_ascii_digit()) && !text.starts_with('0');
    text.parse().ok().filter(|_| usual)
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = if self.tls { "https" } else { "http" };
        if self.host.contains(':') {
            write!(f, "{scheme}://[{}]:{}", self.host, self.port)
        } else {
            write!(f, "{scheme}://{}:{}", self.host, self.port)
        }
    }
}
