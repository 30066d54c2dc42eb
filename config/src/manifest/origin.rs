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

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;

    #[test]
    fn a_server_is_scheme_host_and_port_and_nothing_else() {
        let rows: &[(&str, &str)] = &[
            ("http://192.168.1.20:80", "http://192.168.1.20:80"),
            ("http://192.168.1.20", "http://192.168.1.20:80"),
            ("https://lamp.local", "https://lamp.local:443"),
            ("https://LAMP.Local:65535", "https://lamp.local:65535"),
            ("http://[fd00::0:1]", "http://[fd00::1]:80"),
            ("http://[::1]:8080", "http://[::1]:8080"),
            ("http://a1.b2c", "http://a1.b2c:80"),
            ("http://1.lamp", "http://1.lamp:80"),
        ];
        for (text, shown) in rows {
            let origin: Origin = text.parse().unwrap();
            assert_eq!(&origin.to_string(), shown);
            assert_eq!(shown.parse::<Origin>().unwrap(), origin);
        }
        // Each beside a control that differs only in the flaw.
        let rows: &[(&str, &str, &str)] = &[
            ("ftp://lamp", "begins neither with http:// nor with https://", "http://lamp"),
            ("HTTP://lamp", "begins neither with http:// nor with https://", "http://lamp"),
            ("lamp", "begins neither with http:// nor with https://", "http://lamp"),
            ("http:lamp", "begins neither with http:// nor with https://", "http://lamp"),
            ("http://lamp/", "has a path", "http://lamp"),
            ("http://lamp\\a", "has a path", "http://lamp"),
            ("http://lamp?a", "has a query", "http://lamp"),
            ("http://lamp#a", "has a fragment", "http://lamp"),
            ("http://me@lamp", "names a user", "http://lamp"),
            ("http://a:b@lamp", "names a user", "http://lamp"),
            ("http://", "has no host name and no IP address", "http://a"),
            ("http://:80", "has no host name and no IP address", "http://a:80"),
            ("http://*.lamp", "has no host name and no IP address", "http://a.lamp"),
            ("http://lamp.", "has no host name and no IP address", "http://lamp"),
            ("http:// lamp", "has no host name and no IP address", "http://lamp"),
            ("http://lämp", "has no host name and no IP address", "http://xn--lmp-qla"),
            ("http://127.1", "has no host name and no IP address", "http://127.0.0.1"),
            ("http://2130706433", "has no host name and no IP address", "http://127.0.0.1"),
            ("http://0x7f.0.0.0x1", "has no host name and no IP address", "http://127.0.0.1"),
            ("http://0177.0.0.1", "has no host name and no IP address", "http://177.0.0.1"),
            ("http://256.1.1.1", "has no host name and no IP address", "http://255.1.1.1"),
            ("http://lamp:", "has no port from 1 to 65535 behind its colon", "http://lamp"),
            ("http://lamp:0", "has no port from 1 to 65535 behind its colon", "http://lamp:1"),
            ("http://lamp:65536", "has no port from 1 to 65535 behind its colon", "http://lamp:65535"),
            ("http://lamp:+80", "has no port from 1 to 65535 behind its colon", "http://lamp:80"),
            ("http://lamp:080", "has no port from 1 to 65535 behind its colon", "http://lamp:80"),
            ("http://lamp:80:80", "has no port from 1 to 65535 behind its colon", "http://lamp:80"),
            ("http://[::1", "has no closing bracket", "http://[::1]"),
            ("http://[lamp]", "has no IPv6 address in its brackets", "http://[::2]"),
            ("http://[fe80::1%eth0]", "has no IPv6 address in its brackets", "http://[fe80::1]"),
            ("http://[::1]80", "has something between its address and its port", "http://[::1]:80"),
            ("http://fd00::1", "has no port from 1 to 65535 behind its colon", "http://[fd00::1]"),
        ];
        for (text, reason, control) in rows {
            let error = text.parse::<Origin>().expect_err(text).to_string();
            assert!(error.starts_with(&format!("{text:?} {reason};")), "{error}");
            control.parse::<Origin>().unwrap_or_else(|error| unreachable!("the control is refused: {error}"));
        }
    }
}
