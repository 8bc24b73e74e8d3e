//! The node's own signed identity (docs/reference/http-api.md, section 5.10).

use crate::ClientError;
use crate::client::Handle;
use crate::clock;
use caravan_messages::{SignNode, SignedNode};
use caravan_types::identity::Claims;

impl Handle {
    /// Returns the claims of the node's identity; requests a new identity if the current one is absent or expired.
    ///
    /// # Errors
    /// If the servers sign none.
    pub async fn identity_claims(&self) -> Result<Claims, ClientError> {
        let mut signed = self.signed.lock().await;
        let good = |own: &&SignedNode| own.claims.exp.is_none_or(|end| end > clock::now().as_secs());
        if let Some(own) = signed.as_ref().filter(good) {
            return Ok(own.claims.clone());
        }
        let fresh = self.ask_identity().await?;
        Ok(signed.insert(fresh).claims.clone())
    }

    /// Requests a new identity from the servers.
    ///
    /// # Errors
    /// If the servers sign none.
    pub async fn renew_identity(&self) -> Result<(), ClientError> {
        let mut signed = self.signed.lock().await;
        *signed = Some(self.ask_identity().await?);
        Ok(())
    }

    async fn ask_identity(&self) -> Result<SignedNode, ClientError> {
        let request = SignNode { node_id: self.node_id(), secret: self.node_secret() };
        let answer = self.link.servers.sign_node(request).await;
        answer.map_err(|error| ClientError::Unsigned(error.message))
    }

    /// Waits until the allocations of an earlier agent are restored.
    pub async fn restored(&self) {
        self.restored.cancelled().await;
    }
}
