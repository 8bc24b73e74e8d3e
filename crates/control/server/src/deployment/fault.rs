//! Failures of requests about deployments.

use crate::error::Kind;

/// The failure of a request about deployments.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DeploymentFault {
    /// The deployment does not exist: 500, as in Nomad.
    #[error("deployment not found")]
    NotFound,
    /// The deployment has ended; `verb` names the request.
    #[error("can't {verb} terminal deployment")]
    Terminal { verb: &'static str },
    #[error("must specify at least one healthy/unhealthy allocation ID")]
    NoAlloc,
}

impl DeploymentFault {
    pub(crate) fn kind(&self) -> Kind {
        match self {
            Self::NotFound | Self::Terminal { .. } => Kind::Refused,
            Self::NoAlloc => Kind::BadRequest,
        }
    }
}
