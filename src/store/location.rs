//! Where a store is: the words of the `store` setting.

use std::fmt;
use std::path::{Path, PathBuf};

/// A store's place. Its `Debug` and its address never show a password.
#[derive(Clone, PartialEq, Eq)]
pub enum StoreLocation {
    /// An embedded store in this folder.
    File(PathBuf),
    /// A server. The URL may hold a user and a password; `address` is the URL without them.
    Redis { url: String, address: String },
}

/// Why a `store` setting names no store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LocationError {
    /// No scheme that is known; holds the scheme, or nothing where there is none. Never the whole text.
    UnknownScheme(Option<String>),
    /// A scheme of the contract that this version does not speak yet.
    NotBuiltIn(String),
    /// `file:` without a path, or a URL without a host.
    Incomplete,
}

impl fmt::Display for LocationError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::UnknownScheme(Some(scheme)) => write!(f, "`{scheme}` is no kind of store"),
            Self::UnknownScheme(None) => write!(f, "the store's kind is missing"),
            Self::NotBuiltIn(scheme) => write!(f, "this version cannot speak `{scheme}`"),
            Self::Incomplete => write!(f, "the store's path or host is missing"),
        }
    }
}

impl std::error::Error for LocationError {}

impl StoreLocation {
    /// Reads `file:PATH`, `redis://…` or `redis+unix://…`/`unix://…`.
    pub fn parse(text: &str) -> Result<Self, LocationError> {
        let Some((scheme, rest)) = text.split_once(':') else {
            return Err(LocationError::UnknownScheme(None));
        };
        match scheme {
            "file" if rest.is_empty() => Err(LocationError::Incomplete),
            "file" => Ok(Self::File(PathBuf::from(rest))),
            "redis" | "redis+unix" | "unix" => {
                let authority = rest.strip_prefix("//").ok_or(LocationError::Incomplete)?;
                let place = authority.rsplit_once('@').map_or(authority, |(_, place)| place);
                let (place, parameters) = place.split_once('?').unwrap_or((place, ""));
                if place.is_empty() {
                    return Err(LocationError::Incomplete);
                }
                let address = if scheme == "redis" { whole_address(place) } else { socket_address(place, parameters) };
                Ok(Self::Redis { url: text.to_owned(), address })
            }
            "rediss" | "redis+cluster" | "rediss+cluster" | "redis+sentinel" | "rediss+sentinel" => {
                Err(LocationError::NotBuiltIn(scheme.to_owned()))
            }
            _ => Err(LocationError::UnknownScheme(Some(scheme.to_owned()))),
        }
    }

    /// The store for people and records: the location without user and password.
    pub fn address(&self) -> String {
        match self {
            Self::File(path) => format!("file:{}", path.display()),
            Self::Redis { address, .. } => address.clone(),
        }
    }

    /// Whether the text held a password.
    pub fn holds_password(&self) -> bool {
        match self {
            Self::File(_) => false,
            Self::Redis { url, .. } => {
                let user_info = url.rsplit_once('@').map_or("", |(before, _)| before);
                user_info.splitn(3, ':').count() == 3 || url.contains("?pass=") || url.contains("&pass=")
            }
        }
    }

    /// The folder of an embedded store.
    pub fn folder(&self) -> Option<&Path> {
        match self {
            Self::File(path) => Some(path),
            Self::Redis { .. } => None,
        }
    }
}

/// A socket's path with the number of the database, which is a parameter beside user and password.
fn socket_address(path: &str, parameters: &str) -> String {
    let database = parameters.split('&').find_map(|parameter| parameter.strip_prefix("db=")).unwrap_or("0");
    format!("unix://{path}?db={database}")
}

/// `host[:port][/database]` with all its parts, so that one store has one address however it was typed.
fn whole_address(place: &str) -> String {
    let (server, database) = place.split_once('/').unwrap_or((place, ""));
    let database = if database.is_empty() { "0" } else { database };
    // The colons of an IPv6 address stand in brackets.
    let has_port = server.rsplit_once(':').is_some_and(|(_, port)| !port.contains(']'));
    let port = if has_port { "" } else { ":6379" };
    format!("redis://{}{port}/{database}", server.to_lowercase())
}

impl fmt::Debug for StoreLocation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.address())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_password_is_seen_and_never_shown() {
        let location = StoreLocation::parse("redis://alice:s3cr3t@db1:6379/0").unwrap();
        assert!(location.holds_password());
        assert_eq!(location.address(), "redis://db1:6379/0");
        assert!(!format!("{location:?}").contains("s3cr3t"));
        assert!(!StoreLocation::parse("redis://alice@db1/0").unwrap().holds_password());
        assert!(StoreLocation::parse("redis://:s3cr3t@db1").unwrap().holds_password());
    }

    #[test]
    fn one_server_has_one_address() {
        for text in ["redis://db1", "redis://DB1/", "redis://db1:6379", "redis://u:p@db1:6379/0"] {
            assert_eq!(StoreLocation::parse(text).unwrap().address(), "redis://db1:6379/0", "{text}");
        }
        assert_eq!(StoreLocation::parse("redis://[::1]/2").unwrap().address(), "redis://[::1]:6379/2");
        for text in ["unix:///run/r.sock", "redis+unix:///run/r.sock?db=0", "unix:///run/r.sock?user=u&pass=p&db=0"] {
            assert_eq!(StoreLocation::parse(text).unwrap().address(), "unix:///run/r.sock?db=0");
        }
    }

    #[test]
    fn what_is_no_store_is_refused() {
        assert_eq!(StoreLocation::parse("/var/lib/x"), Err(LocationError::UnknownScheme(None)));
        assert_eq!(StoreLocation::parse("sqlite:x"), Err(LocationError::UnknownScheme(Some("sqlite".into()))));
        assert_eq!(StoreLocation::parse("file:"), Err(LocationError::Incomplete));
        assert_eq!(StoreLocation::parse("redis://"), Err(LocationError::Incomplete));
        assert_eq!(StoreLocation::parse("rediss://db1"), Err(LocationError::NotBuiltIn("rediss".into())));
    }
}
