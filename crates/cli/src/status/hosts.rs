//! The names under which the status page may be requested.

use std::net::IpAddr;

/// The names of this machine. An address is accepted if the connection arrived at it. A name is accepted only if no other
/// machine can have it: `localhost`, and the name of this machine if other machines may read the page.
pub(super) struct Hosts {
    /// Nothing if only this machine may read the page.
    node_name: Option<String>,
}

impl Hosts {
    pub(super) fn new(may_be_remote: bool) -> Hosts {
        let node_name = || rustix::system::uname().nodename().to_string_lossy().into_owned();
        Hosts { node_name: may_be_remote.then(node_name) }
    }

    /// Whether a request with this `Host` may be answered on a connection that arrived at this address.
    pub(super) fn accept(&self, host: Option<&str>, local: IpAddr) -> bool {
        let Some(name) = host.and_then(without_port) else { return false };
        match name.parse::<IpAddr>() {
            Ok(address) => address == local || address.is_loopback() && local.is_loopback(),
            Err(_) if name.eq_ignore_ascii_case("localhost") => local.is_loopback(),
            Err(_) => self.node_name.as_deref().is_some_and(|node| node.eq_ignore_ascii_case(name)),
        }
    }
}

/// The name in a `Host`, without brackets. Nothing if it is not one.
fn without_port(host: &str) -> Option<&str> {
    let (name, port) = match host.strip_prefix('[') {
        Some(rest) => rest.split_once(']')?,
        None => host.split_at(host.find(':').unwrap_or(host.len())),
    };
    let is_port = |port: &str| !port.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit());
    (port.is_empty() || port.strip_prefix(':').is_some_and(is_port)).then_some(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn accept(host: &str, local: &str, node_name: Option<&str>) -> bool {
        let hosts = Hosts { node_name: node_name.map(str::to_owned) };
        hosts.accept(Some(host), local.parse().unwrap())
    }

    #[test]
    fn names_of_this_machine_are_accepted() {
        for host in ["127.0.0.1:9180", "127.0.0.1", "localhost", "LocalHost:8080", "127.0.0.2:9180"] {
            assert!(accept(host, "127.0.0.1", None), "{host}");
        }
        assert!(accept("[::1]:9180", "::1", None));
        assert!(accept("192.0.2.7:9180", "192.0.2.7", None));
        assert!(accept("Store1:9180", "192.0.2.7", Some("store1")));
    }

    /// A page of another site can have the browser send requests with its own name to any address.
    #[test]
    fn names_of_others_are_refused() {
        for host in [
            "evil.example:9180",
            "localhost.evil.example",
            "127.0.0.1.evil.example",
            "127.0.0.1:9180@evil.example",
            "127.0.0.1:",
            "",
            "[::1",
            "[::1]9180",
            "192.0.2.7:9180",
            "store1",
        ] {
            assert!(!accept(host, "127.0.0.1", None), "{host}");
        }
        assert!(!accept("127.0.0.1:9180", "192.0.2.7", None));
        assert!(!accept("localhost:9180", "192.0.2.7", Some("store1")));
        assert!(!accept("store1.evil.example", "192.0.2.7", Some("store1")));
        assert!(!Hosts { node_name: None }.accept(None, "127.0.0.1".parse().unwrap()));
    }
}
