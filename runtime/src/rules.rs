//! Which HTTP requests are looked at at all: the rules that keep browsers and foreign names out.
//!
//! Pure functions of a request's head. The direct link refuses every browser. The keeper's pages are for one browser on this
//! machine, and refuse what another site could make it send: a foreign `Host` (a name re-pointed to loopback), a foreign `Origin`,
//! a body that is not JSON.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::{Arc, PoisonError, RwLock};

use axum::http::header::{CONTENT_TYPE, HOST, ORIGIN};
use axum::http::{HeaderMap, HeaderName, HeaderValue, Request};

/// Set by browsers alone; a script cannot leave it out.
const SEC_FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");

/// Why a request was not looked at. The peer is not told which.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum KeptOut {
    Origin,
    FetchSite,
    Host,
    ContentType,
}

impl KeptOut {
    pub(crate) const fn label(self) -> &'static str {
        match self {
            Self::Origin => "origin",
            Self::FetchSite => "sec_fetch_site",
            Self::Host => "host",
            Self::ContentType => "content_type",
        }
    }
}

/// The names, beside IP literals and `localhost`, that a `Host` header of the direct link may carry. A reload replaces them.
#[derive(Debug, Clone, Default)]
pub(crate) struct HostNames(Arc<RwLock<Vec<String>>>);

impl HostNames {
    pub(crate) fn new(names: Vec<String>) -> Self {
        Self(Arc::new(RwLock::new(names)))
    }

    pub(crate) fn replace(&self, names: Vec<String>) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = names;
    }

    fn contain(&self, name: &str) -> bool {
        self.0.read().unwrap_or_else(PoisonError::into_inner).iter().any(|known| known.eq_ignore_ascii_case(name))
    }
}

/// The direct link: no browser, and a `Host` that no web site can choose.
pub(crate) fn direct<B>(request: &Request<B>, names: &HostNames) -> Result<(), KeptOut> {
    let headers = request.headers();
    if headers.contains_key(ORIGIN) {
        return Err(KeptOut::Origin);
    }
    if headers.contains_key(&SEC_FETCH_SITE) {
        return Err(KeptOut::FetchSite);
    }
    let named = match host(request)? {
        Host::Ip(_) => true,
        Host::Name(name) => name.eq_ignore_ascii_case("localhost") || names.contain(name),
    };
    if named { Ok(()) } else { Err(KeptOut::Host) }
}

/// The keeper's pages on `port`: our own three spellings of loopback, and no other origin than the one that was asked.
pub(crate) fn page<B>(request: &Request<B>, port: u16) -> Result<(), KeptOut> {
    let headers = request.headers();
    let host = host_text(request)?;
    let (name, asked_port) = split(host).ok_or(KeptOut::Host)?;
    let ours = match name {
        Host::Ip(ip) => ip == IpAddr::V4(Ipv4Addr::LOCALHOST) || ip == IpAddr::V6(Ipv6Addr::LOCALHOST),
        Host::Name(name) => name.eq_ignore_ascii_case("localhost"),
    };
    if !ours || asked_port.unwrap_or(80) != port {
        return Err(KeptOut::Host);
    }
    match only(headers, &ORIGIN) {
        One::None => {}
        One::Value(origin) => {
            let asked = origin.to_str().ok().and_then(|origin| origin.strip_prefix("http://"));
            if !asked.is_some_and(|asked| asked.eq_ignore_ascii_case(host)) {
                return Err(KeptOut::Origin);
            }
        }
        One::Many => return Err(KeptOut::Origin),
    }
    match only(headers, &SEC_FETCH_SITE) {
        One::None => Ok(()),
        // `none`: the address was typed, or the kiosk was started with it.
        One::Value(site) if site == "same-origin" || site == "none" => Ok(()),
        One::Value(_) | One::Many => Err(KeptOut::FetchSite),
    }
}

/// The body says that it is JSON. A form on a foreign site cannot say so without asking first.
pub(crate) fn json_body(headers: &HeaderMap) -> Result<(), KeptOut> {
    let One::Value(value) = only(headers, &CONTENT_TYPE) else { return Err(KeptOut::ContentType) };
    let text = value.to_str().map_err(|_not_ascii| KeptOut::ContentType)?;
    let essence = text.split(';').next().unwrap_or_default().trim();
    if essence.eq_ignore_ascii_case("application/json") { Ok(()) } else { Err(KeptOut::ContentType) }
}

enum One<'a> {
    None,
    Value(&'a HeaderValue),
    Many,
}

fn only<'a>(headers: &'a HeaderMap, name: &HeaderName) -> One<'a> {
    let mut values = headers.get_all(name).iter();
    match (values.next(), values.next()) {
        (None, _) => One::None,
        (Some(value), None) => One::Value(value),
        (Some(_), Some(_)) => One::Many,
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Host<'a> {
    Ip(IpAddr),
    Name(&'a str),
}

/// The one `Host` header. A request line with a whole URL would name a second host, so it is refused too.
fn host_text<B>(request: &Request<B>) -> Result<&str, KeptOut> {
    let One::Value(value) = only(request.headers(), &HOST) else { return Err(KeptOut::Host) };
    if request.uri().authority().is_some() {
        return Err(KeptOut::Host);
    }
    value.to_str().map_err(|_not_ascii| KeptOut::Host)
}

fn host<B>(request: &Request<B>) -> Result<Host<'_>, KeptOut> {
    split(host_text(request)?).map(|(host, _port)| host).ok_or(KeptOut::Host)
}

/// `name`, `name:port`, `1.2.3.4`, `1.2.3.4:port`, `[v6]`, `[v6]:port`; nothing else.
fn split(text: &str) -> Option<(Host<'_>, Option<u16>)> {
    let (host, rest) = match text.strip_prefix('[') {
        Some(inner) => {
            let (literal, rest) = inner.split_once(']')?;
            (Host::Ip(IpAddr::V6(literal.parse().ok()?)), rest)
        }
        None => {
            let (name, rest) = text.find(':').map_or((text, ""), |colon| text.split_at(colon));
            if name.is_empty() {
                return None;
            }
            (name.parse().map_or(Host::Name(name), |ip| Host::Ip(IpAddr::V4(ip))), rest)
        }
    };
    match rest.strip_prefix(':') {
        None if rest.is_empty() => Some((host, None)),
        None => None,
        Some(port) if port.bytes().all(|byte| byte.is_ascii_digit()) => Some((host, Some(port.parse().ok()?))),
        Some(_) => None,
    }
}
