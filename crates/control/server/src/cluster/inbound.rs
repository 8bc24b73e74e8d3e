//! The calls of other servers.

use super::Cluster;
use super::founder::promise;
use super::transport::kind_of;
use crate::error::ServerError;
use crate::runtime;
use bytes::Bytes;
use caravan_consensus::{ClusterId, ServerId};
use caravan_founding::{Answer, Reply, accepts_admission, reply, stands};
use caravan_messages::cluster::{
    Admit, Admitted, AskFounding, AskPromise, FoundingStands, LogMessage, PromiseAnswer, ServerStatus,
};
use caravan_rpc::{Code, Context, PeerIdentity, ReverseRegistry, RouterBuilder, RpcError, methods};
use futures::StreamExt as _;

/// The callers of a method.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Callers {
    /// Servers of this region.
    Servers,
    /// Servers that have proved that they belong to the cluster.
    Members,
}

impl Cluster {
    /// Adds the methods that other servers call to the router.
    pub(crate) fn serve(&self, builder: RouterBuilder, registry: ReverseRegistry) -> RouterBuilder {
        let this = self.clone();
        let builder = builder.unary::<methods::LogCall, _, _>(move |context, message| {
            let this = this.clone();
            async move {
                this.only(&context, Callers::Members)?;
                this.receive(message).await
            }
        });
        let this = self.clone();
        let builder = builder.duplex::<methods::LogSnapshot, _, _, _>(move |context, head, parts| {
            let this = this.clone();
            async move {
                this.only(&context, Callers::Members)?;
                this.join_as_promised().await.map_err(RpcError::from)?;
                let chunks = parts.map(|part| match part {
                    Ok(part) => Ok(Bytes::from(part.body)),
                    Err(error) => Err(std::io::Error::other(error)),
                });
                let answer = this.log.receive_snapshot(head.body.into(), chunks.boxed()).await;
                let answer = answer.map_err(|error| RpcError::unavailable(error.to_string()))?;
                let message = LogMessage { kind: 0, body: answer.into() };
                Ok(futures::stream::once(std::future::ready(Ok(message))))
            }
        });
        let this = self.clone();
        let builder = builder.unary::<methods::ServerStatus, _, _>(move |context, _| {
            let this = this.clone();
            async move {
                this.only(&context, Callers::Servers)?;
                Ok(this.status())
            }
        });
        let this = self.clone();
        let builder = builder.unary::<methods::ServerPromise, _, _>(move |context, asked| {
            let this = this.clone();
            async move {
                this.only(&context, Callers::Servers)?;
                this.promise(asked).await.map_err(RpcError::from)
            }
        });
        let this = self.clone();
        let builder = builder.unary::<methods::ServerFounding, _, _>(move |context, asked: AskFounding| {
            let this = this.clone();
            async move {
                this.only(&context, Callers::Servers)?;
                let _turn = this.promises.turn().await;
                let stands = stands(&this.promises.own(this.cluster()), &asked.founding);
                Ok(FoundingStands { stands })
            }
        });
        let this = self.clone();
        let builder = builder.unary::<methods::ServerAdmit, _, _>(move |context, admit| {
            let this = this.clone();
            async move {
                this.only(&context, Callers::Servers)?;
                this.admit(admit).await.map_err(RpcError::from)
            }
        });
        let this = self.clone();
        builder.stream::<methods::ServerNodes, _, _, _>(move |context, _| {
            let (this, registry) = (this.clone(), registry.clone());
            async move {
                this.only(&context, Callers::Members)?;
                Ok(super::nodes::follow(registry))
            }
        })
    }

    /// Refuses callers that have not proved that they belong to the cluster.
    pub(crate) fn only_members(&self, context: &Context) -> Result<(), RpcError> {
        self.only(context, Callers::Members)
    }

    /// Refuses a caller that may not call a method.
    fn only(&self, context: &Context, callers: Callers) -> Result<(), RpcError> {
        let is_right = match &context.peer {
            PeerIdentity::Server(server) => {
                server.is_member || (callers == Callers::Servers && *server.region == *self.region)
            }
            _ => false,
        };
        if is_right {
            return Ok(());
        }
        let reason = match callers {
            Callers::Members => {
                "only servers that have proved that they belong to the cluster may call this".to_owned()
            }
            Callers::Servers => format!("only servers of region \"{}\" may call this", self.region),
        };
        Err(RpcError::new(Code::Permission, reason))
    }

    fn cluster(&self) -> Option<caravan_founding::ClusterId> {
        self.identity().cluster.map(|id| caravan_founding::ClusterId(id.0))
    }

    async fn receive(&self, message: LogMessage) -> Result<LogMessage, RpcError> {
        let unknown = || RpcError::new(Code::Invalid, "a message of the log has an unknown kind");
        let kind = kind_of(message.kind).ok_or_else(unknown)?;
        self.join_as_promised().await.map_err(RpcError::from)?;
        let answer = self.log.receive(kind, message.body.into()).await;
        let answer = answer.map_err(|error| RpcError::unavailable(error.to_string()))?;
        Ok(LogMessage { kind: 0, body: answer.into() })
    }

    /// Makes this server a member of the cluster to which the server is promised. The caller has proved that it has
    /// the key of that cluster, so the cluster is founded.
    async fn join_as_promised(&self) -> Result<(), ServerError> {
        if self.identity().cluster.is_some() {
            return Ok(());
        }
        let _turn = self.promises.turn().await;
        let Some(promised) = self.promises.promised() else { return Ok(()) };
        let founding = &promised.promise.founding;
        let Some(number) = founding.number(self.promises.server()) else { return Ok(()) };
        self.keyring.set_cluster_key(&promised.key)?;
        self.log.admit(ClusterId(founding.cluster.0), ServerId(number)).await?;
        self.show(ClusterId(founding.cluster.0), number);
        Ok(())
    }

    /// Returns the facts that this server reports to other servers.
    pub(crate) fn status(&self) -> ServerStatus {
        let (identity, metrics) = (self.identity(), self.log.metrics());
        let contact = match metrics.is_leader {
            true => Some(0),
            false => self.log.last_contact().map(|age| u64::try_from(age.as_nanos()).unwrap_or(u64::MAX)),
        };
        ServerStatus {
            id: self.config.id,
            cluster: identity.cluster.map(|id| id.0),
            number: identity.number.map(|number| number.0),
            term: metrics.term,
            last_term: metrics.last_log_term,
            last_index: metrics.last_log_index,
            last_contact: contact,
            level: self.config.level,
            now: runtime::wall(),
        }
    }

    async fn promise(&self, asked: AskPromise) -> Result<PromiseAnswer, ServerError> {
        let _turn = self.promises.turn().await;
        let answer = match reply(&self.promises.own(self.cluster()), &asked.founding) {
            Reply::Store(_) => {
                let cluster = asked.founding.cluster;
                tracing::info!(%cluster, proposer = %asked.founding.proposer, "promising to found a cluster");
                promise(self, asked.founding, asked.key)?;
                Answer::Promised
            }
            Reply::Send(answer) => answer,
        };
        Ok(PromiseAnswer { answer })
    }

    /// Becomes a member of the cluster of the calling leader.
    async fn admit(&self, admit: Admit) -> Result<Admitted, ServerError> {
        let _turn = self.promises.turn().await;
        let own = self.promises.own(self.cluster());
        if !accepts_admission(&own, caravan_founding::ClusterId(admit.cluster)) {
            let reason = match (own.cluster, own.promise) {
                (Some(cluster), _) => format!("this server belongs to cluster {cluster}"),
                (None, Some(promise)) => format!(
                    "this server is promised to the founding of cluster {}; if its proposer is lost for good, remove \
                     the file \"founding\" in the server's data directory and restart the server",
                    promise.founding.cluster
                ),
                (None, None) => "this server does not join this cluster".to_owned(),
            };
            return Err(RpcError::new(Code::Conflict, reason).into());
        }
        if admit.level > self.config.level {
            let reason = format!(
                "the cluster uses feature level {}, this server supports {}: it needs a newer version",
                admit.level, self.config.level
            );
            return Err(RpcError::new(Code::Conflict, reason).into());
        }
        self.keyring.set_cluster_key(&admit.key)?;
        self.log.admit(ClusterId(admit.cluster), ServerId(admit.number)).await?;
        self.promises.store(None)?;
        self.show(ClusterId(admit.cluster), admit.number);
        tracing::info!(cluster = %admit.cluster, number = admit.number, "this server is admitted to a cluster");
        Ok(Admitted { number: admit.number })
    }
}
