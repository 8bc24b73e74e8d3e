//! The node's own signed identity (docs/reference/http-api.md, section 5.10). The servers renew it with heartbeats.

use crate::ClientError;
use crate::client::Handle;
use caravan_messages::{SignNode, SignedNode};
use caravan_types::identity::Claims;

impl Handle {
    /// Returns the claims of the node's identity; requests a new identity if the current one is absent or expired.
    ///
    /// # Errors
    /// If the servers sign no identity.
    pub async fn identity_claims(&self) -> Result<Claims, ClientError> {
        if let Some(own) = self.link.identity.signed.valid() {
            return Ok(own.claims.clone());
        }
        let fresh = self.ask_identity().await?;
        let claims = fresh.claims.clone();
        self.link.identity.signed.set(fresh);
        Ok(claims)
    }

    /// Requests a new identity from the servers.
    ///
    /// # Errors
    /// If the servers sign no identity.
    pub async fn renew_identity(&self) -> Result<(), ClientError> {
        let fresh = self.ask_identity().await?;
        self.link.identity.signed.set(fresh);
        Ok(())
    }

    async fn ask_identity(&self) -> Result<SignedNode, ClientError> {
        let request = SignNode { node_id: self.node_id(), secret: self.link.identity.secret.clone() };
        let answer = self.link.servers.sign_node(request).await;
        answer.map_err(|error| ClientError::Unsigned(error.message))
    }

    /// Waits until the allocations of an earlier agent are restored.
    pub async fn restored(&self) {
        self.restored.cancelled().await;
    }
}
