//! A conflict as interfaces know it: what the payment was first, what it is now, and where the first stands.

use serde::Serialize;

use crate::domain::{Basis, Claim, Decided, Decision, Field, write_hex};

/// A record whose payment stands with another content. Never a value of either.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Conflict {
    /// The identity hash of both.
    pub idempotency_key: String,
    /// The leading 24 digits of the source hash that stands.
    pub original_hash: String,
    pub new_hash: String,
    pub changed_fields: Vec<&'static str>,
    #[serde(rename = "ErrorCode")]
    error_code: &'static str,
    #[serde(rename = "ErrorDescription")]
    error_description: String,
    #[serde(rename = "PreviousResourceUri")]
    previous_resource_uri: String,
    #[serde(rename = "PreviousPayloadHash")]
    previous_payload_hash: String,
}

impl Conflict {
    /// What is wrong, in words.
    pub fn description(&self) -> &str {
        &self.error_description
    }

    /// The conflict that was `decided` on the record of `claim`; none where it is none.
    pub fn of(decided: &Decided, claim: &Claim) -> Option<Self> {
        let original = decided.original.as_deref().filter(|_| decided.decision == Decision::Conflict)?;
        let changed_fields: Vec<_> = original.changed_fields(&claim.content()).map(Field::name).collect();
        let original_hash = hex(original.hash_start());
        Some(Self {
            idempotency_key: claim.identity.to_string(),
            new_hash: claim.source_hash.to_string(),
            error_code: Decision::Conflict.wire_name(),
            error_description: description(&changed_fields),
            previous_resource_uri: uri(decided.basis.as_ref()?),
            previous_payload_hash: original_hash.clone(),
            original_hash,
            changed_fields,
        })
    }
}

fn description(changed_fields: &[&str]) -> String {
    match changed_fields {
        [] => "the payment was taken in before with other content".to_owned(),
        [field] => format!("the payment was taken in before with another {field}"),
        [fields @ .., last] => {
            format!("the payment was taken in before with another {} and {last}", fields.join(", "))
        }
    }
}

/// Where the first sight stands: its trace id, as the path of a URI.
fn uri(basis: &Basis) -> String {
    let trace = match basis {
        Basis::Row { owner, row, .. } => format!("{}:{row}", owner.run),
        Basis::OtherWriter(writer) => percent_encoded(&writer.0),
        Basis::Unreadable => String::new(),
    };
    format!("feeddedup:trace/{trace}")
}

/// `text` with every byte escaped that may not stand in a path.
fn percent_encoded(text: &str) -> String {
    let mut encoded = String::new();
    for byte in text.bytes() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' | b':' | b'@' => {
                encoded.push(char::from(byte));
            }
            _ => encoded.push_str(&format!("%{byte:02X}")),
        }
    }
    encoded
}

fn hex(bytes: &[u8]) -> String {
    let mut digits = Vec::new();
    write_hex(bytes, &mut digits);
    String::from_utf8(digits).expect("hexadecimal is ASCII")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_description_names_every_field() {
        assert_eq!(description(&[]), "the payment was taken in before with other content");
        assert_eq!(description(&["amount"]), "the payment was taken in before with another amount");
        assert_eq!(
            description(&["amount", "currency", "posted_at"]),
            "the payment was taken in before with another amount, currency and posted_at"
        );
    }

    #[test]
    fn another_writers_trace_is_a_path_of_a_uri() {
        assert_eq!(percent_encoded("webhook-1:é /?"), "webhook-1:%C3%A9%20%2F%3F");
    }
}
