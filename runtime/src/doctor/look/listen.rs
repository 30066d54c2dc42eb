//! Where the device listens: a running one is knocked at, for one that does not run the port is tried.

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream};
use std::time::Duration;

use config::Settings;

use crate::doctor::{Finding, Part};
use crate::keeper::ask::Address;

/// This machine answers itself in no time.
const KNOCK_MAX: Duration = Duration::from_secs(2);

/// One address with its settings key, and whether it does.
pub(crate) type Door = (SocketAddr, &'static str, io::Result<()>);

/// Knocks at the doors of a running device.
pub(crate) fn knock(address: &Address) -> Vec<Door> {
    let display = address.display.as_deref().and_then(|url| url.strip_prefix("http://")?.split('/').next());
    let bound = [(Some(address.direct.as_str()), "link.direct.listen"), (display, "keeper.listen")];
    let doors = bound.into_iter().filter_map(|(address, key)| Some((address?.parse::<SocketAddr>().ok()?, key)));
    doors
        .map(|(address, key)| (address, key, TcpStream::connect_timeout(&reachable(address), KNOCK_MAX).map(drop)))
        .collect()
}

/// Tries the ports that a device would take.
pub(crate) fn bind(settings: &Settings) -> Vec<Door> {
    let mut doors = vec![(settings.link.direct.listen, "link.direct.listen")];
    if settings.keeper.display {
        doors.push((settings.keeper.listen, "keeper.listen"));
    }
    doors.into_iter().map(|(address, key)| (address, key, TcpListener::bind(address).map(drop))).collect()
}

/// Whoever listens everywhere is knocked at here.
fn reachable(address: SocketAddr) -> SocketAddr {
    match address {
        SocketAddr::V4(v4) if v4.ip().is_unspecified() => (Ipv4Addr::LOCALHOST, v4.port()).into(),
        SocketAddr::V6(v6) if v6.ip().is_unspecified() => (Ipv6Addr::LOCALHOST, v6.port()).into(),
        other => other,
    }
}

pub(crate) fn judge(doors: &[Door], running: bool, tls: bool) -> Finding {
    for (address, key, told) in doors {
        let Err(error) = told else { continue };
        if running {
            let what = format!("the device does not answer at {address} ({key}): {error}");
            return Finding::broken(Part::Listen, what, "latchkeyd status");
        }
        let (what, mend) = match error.kind() {
            io::ErrorKind::AddrInUse => {
                (format!("something else has {address} ({key})"), format!("ss -ltnp 'sport = :{}'", address.port()))
            }
            io::ErrorKind::AddrNotAvailable => {
                (format!("this machine has no address {} ({key})", address.ip()), "ip address".to_owned())
            }
            _ => (format!("cannot listen on {address} ({key}): {error}"), "latchkeyd config show".to_owned()),
        };
        return Finding::broken(Part::Listen, what, mend);
    }
    let direct = doors.first().map(|(address, _, _)| *address);
    let reach = match direct {
        Some(address) if address.ip().is_loopback() => "agents reach it on this machine alone".to_owned(),
        Some(_) if tls => "agents reach it from the network, over TLS".to_owned(),
        Some(_) => "agents reach it from the network, and what passes can be read on the way".to_owned(),
        None => "it listens nowhere".to_owned(),
    };
    let all: Vec<String> = doors.iter().map(|(address, _, _)| address.to_string()).collect();
    let state = if running { "answers at" } else { "can listen on" };
    Finding::works(Part::Listen, format!("{state} {}; {reach}", all.join(" and ")))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;
    use crate::doctor::Verdict;

    #[test]
    fn a_port_that_is_taken_is_named_with_the_command_that_shows_by_whom() {
        let taken = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = taken.local_addr().unwrap();
        let told = TcpListener::bind(address).map(drop);
        let finding = judge(&[(address, "link.direct.listen", told)], false, false);
        assert_eq!(finding.verdict, Verdict::Broken);
        assert_eq!(finding.what, format!("something else has {address} (link.direct.listen)"));
        assert_eq!(finding.mend, Some(format!("ss -ltnp 'sport = :{}'", address.port())));
        drop(taken);
        let free = judge(&[(address, "link.direct.listen", Ok(()))], false, false);
        assert_eq!(free.what, format!("can listen on {address}; agents reach it on this machine alone"));
    }

    #[test]
    fn who_can_reach_the_device_is_told_and_a_running_one_that_does_not_answer_is_broken() {
        let everywhere: SocketAddr = "0.0.0.0:7601".parse().unwrap();
        for (tls, words) in [(true, "from the network, over TLS"), (false, "can be read on the way")] {
            let finding = judge(&[(everywhere, "link.direct.listen", Ok(()))], true, tls);
            assert!(finding.verdict == Verdict::Works && finding.what.contains(words), "{}", finding.what);
        }
        let dead = [(everywhere, "link.direct.listen", Err(io::ErrorKind::ConnectionRefused.into()))];
        let finding = judge(&dead, true, true);
        assert_eq!((finding.verdict, finding.mend.as_deref()), (Verdict::Broken, Some("latchkeyd status")));
        assert_eq!(reachable(everywhere).to_string(), "127.0.0.1:7601");
        assert_eq!(reachable("[::]:1".parse().unwrap()).to_string(), "[::1]:1");
    }
}
