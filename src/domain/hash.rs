//! The two hashes of a record, and digests of files.

use std::fmt;

use sha2::Digest as _;

/// Lower-case hexadecimal digits of every byte.
const HEX: [[u8; 2]; 256] = {
    let digits = *b"0123456789abcdef";
    let mut table = [[0; 2]; 256];
    let mut byte = 0;
    while byte < 256 {
        table[byte] = [digits[byte >> 4], digits[byte & 15]];
        byte += 1;
    }
    table
};

/// Appends `bytes` in lower-case hexadecimal.
pub fn write_hex(bytes: &[u8], out: &mut Vec<u8>) {
    let start = out.len();
    out.resize(start + 2 * bytes.len(), 0);
    for (digits, &byte) in out[start..].chunks_exact_mut(2).zip(bytes) {
        digits.copy_from_slice(&HEX[usize::from(byte)]);
    }
}

macro_rules! sha256_type {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub struct $name([u8; 32]);

        impl $name {
            /// The SHA-256 of `bytes`.
            pub fn of(bytes: &[u8]) -> Self {
                Self(sha2::Sha256::digest(bytes).into())
            }

            /// The SHA-256 of all `parts`, one behind the other.
            pub fn of_parts<const N: usize>(parts: [&[u8]; N]) -> Self {
                Self(parts.into_iter().fold(sha2::Sha256::new(), sha2::Digest::chain_update).finalize().into())
            }

            /// A hash that was computed elsewhere.
            pub fn from_bytes(bytes: [u8; 32]) -> Self {
                Self(bytes)
            }

            /// The 32 bytes.
            pub fn as_bytes(&self) -> &[u8; 32] {
                &self.0
            }

            /// Reads 64 hexadecimal digits of lower case.
            pub fn from_hex(text: &str) -> Option<Self> {
                let digits = text.as_bytes();
                if digits.len() != 64 {
                    return None;
                }
                let mut bytes = [0; 32];
                for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
                    *byte = u8::try_from(HEX.iter().position(|hex| hex == pair)?).ok()?;
                }
                Some(Self(bytes))
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(self, f)
            }
        }
    };
}

sha256_type! {
    /// The SHA-256 of a record's canonical form: the identity of the record.
    SourceHash
}
sha256_type! {
    /// The SHA-256 over account and bank id alone: the payment that a record is a version of.
    IdentityHash
}
sha256_type! {
    /// The SHA-256 of a feed or of an output file.
    Digest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hexadecimal_comes_back() {
        let hash = SourceHash::of(b"abc");
        assert_eq!(hash.to_string(), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
        assert_eq!(SourceHash::from_hex(&hash.to_string()), Some(hash));
        assert_eq!(SourceHash::from_hex(&hash.to_string().to_uppercase()), None);
        let mut out = Vec::new();
        write_hex(hash.as_bytes(), &mut out);
        assert_eq!(out, hash.to_string().as_bytes());
    }
}
