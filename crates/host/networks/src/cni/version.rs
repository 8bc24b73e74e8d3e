//! The versions of the specification.

use std::fmt;
use std::str::FromStr;

/// A version of the specification that the client supports.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum SpecVersion {
    /// Version 0.1.0.
    V0_1_0,
    /// Version 0.2.0.
    V0_2_0,
    /// Version 0.3.0, the first with lists of interfaces.
    V0_3_0,
    /// Version 0.3.1.
    V0_3_1,
    /// Version 0.4.0, the first with CHECK.
    V0_4_0,
    /// Version 1.0.0.
    V1_0_0,
    /// Version 1.1.0, the first with STATUS and GC.
    V1_1_0,
}

impl SpecVersion {
    /// All versions.
    pub const ALL: [Self; 7] =
        [Self::V0_1_0, Self::V0_2_0, Self::V0_3_0, Self::V0_3_1, Self::V0_4_0, Self::V1_0_0, Self::V1_1_0];

    /// Returns the version as configurations name it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::V0_1_0 => "0.1.0",
            Self::V0_2_0 => "0.2.0",
            Self::V0_3_0 => "0.3.0",
            Self::V0_3_1 => "0.3.1",
            Self::V0_4_0 => "0.4.0",
            Self::V1_0_0 => "1.0.0",
            Self::V1_1_0 => "1.1.0",
        }
    }

    /// Returns whether plugins support the command CHECK, and receive the earlier result at DEL.
    pub fn has_check(self) -> bool {
        self >= Self::V0_4_0
    }

    /// Returns whether plugins support the commands STATUS and GC.
    pub fn has_status(self) -> bool {
        self >= Self::V1_1_0
    }
}

impl fmt::Display for SpecVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for SpecVersion {
    type Err = ();

    /// Reads a version. An empty text means the oldest version.
    fn from_str(text: &str) -> Result<Self, ()> {
        if text.is_empty() {
            return Ok(Self::V0_1_0);
        }
        Self::ALL.into_iter().find(|version| version.as_str() == text).ok_or(())
    }
}
