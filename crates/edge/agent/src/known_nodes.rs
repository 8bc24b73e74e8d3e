//! The rule that decides which nodes may connect to this agent's server.

use crate::tls::Live;
use caravan_rpc::{Authenticator, Certificate, Code, Hello, PeerIdentity, Role, RpcError, ServerPeer};
use caravan_types::NodeId;
use futures::future::BoxFuture;

/// An authenticator that accepts only nodes of this region. A node proves its identity by the secret of its first
/// registration.
#[derive(Debug)]
pub(crate) struct KnownNodes {
    pub(crate) server: caravan_server::Handle,
    pub(crate) region: String,
    pub(crate) tls: Live,
    pub(crate) members: caravan_members::Handle,
}

impl KnownNodes {
    /// Returns whether the member table has an alive server with the UUID and the region that a server claims.
    fn is_listed(&self, server: &ServerPeer) -> bool {
        let Ok(id) = server.id.parse() else { return false };
        let view = self.members.view();
        view.by_id(id).is_some_and(|member| member.is_alive() && member.region() == server.region)
    }
}

impl Authenticator for KnownNodes {
    fn authenticate<'a>(
        &'a self,
        role: Role,
        hello: &'a Hello,
    ) -> BoxFuture<'a, Result<PeerIdentity, RpcError>> {
        let known = match &hello.identity {
            PeerIdentity::Client { node_id, secret } => {
                self.server.is_node(&NodeId::new(node_id), secret.expose())
            }
            _ => None,
        };
        let verdict = match &hello.identity {
            // Servers of other regions pass requests on, which are checked like those of users.
            PeerIdentity::Server(server) if role == Role::Rpc => {
                Ok(PeerIdentity::Server(ServerPeer { region: hello.region.clone(), ..server.clone() }))
            }
            _ if hello.region != self.region => Err(RpcError::new(
                Code::Permission,
                format!("region {:?} is not served here: this server's is {:?}", hello.region, self.region),
            )),
            PeerIdentity::Client { node_id, .. } if known == Some(false) => {
                Err(RpcError::new(Code::Permission, format!("node {node_id} is known by another secret")))
            }
            // Servers send calls over such a connection, so it needs a registered node.
            PeerIdentity::Client { node_id, .. } if known.is_none() && role == Role::Reversed => {
                Err(RpcError::new(Code::NotFound, format!("node {node_id} is not registered yet")))
            }
            PeerIdentity::Server(server) => {
                Ok(PeerIdentity::Server(ServerPeer { region: hello.region.clone(), ..server.clone() }))
            }
            identity => Ok(identity.clone()),
        };
        Box::pin(std::future::ready(verdict))
    }

    fn admit<'a>(
        &'a self,
        role: Role,
        hello: &'a Hello,
        certificate: Option<&'a Certificate>,
    ) -> BoxFuture<'a, Result<PeerIdentity, RpcError>> {
        match self.tls.rules().check(hello, &self.region, certificate) {
            Ok(()) => self.authenticate(role, hello),
            Err(error) => Box::pin(std::future::ready(Err(error))),
        }
    }

    fn proves(&self, peer: &PeerIdentity, certificate: Option<&Certificate>) -> bool {
        match peer {
            PeerIdentity::Client { node_id, secret } => {
                certificate.is_some()
                    || self.server.is_node(&NodeId::new(node_id), secret.expose()) == Some(true)
            }
            // Servers of other regions have no common secret. Without TLS, the claim of a listed server only lifts
            // the limits of strangers; its requests have no more rights than those of users.
            PeerIdentity::Server(server) => certificate.is_some() || self.is_listed(server),
            _ => certificate.is_some(),
        }
    }
}
