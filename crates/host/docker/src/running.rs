//! The running containers: one list of the engine for all watchers that request it at the same time. Many do so when
//! an agent has just started.

use crate::container::NODE_LABEL;
use crate::engine::{Engine, text};
use crate::tasks::PATIENCE;
use bollard::query_parameters::ListContainersOptionsBuilder;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use tokio::sync::Mutex;
use tokio::time::Instant;

/// The ids of the containers that run, or the reason that they are not known.
type Answer = Result<Arc<HashSet<String>>, String>;

/// The latest list.
#[derive(Debug, Default)]
pub(crate) struct Running {
    /// The list with the time at which it was requested.
    latest: Mutex<Option<(Instant, Answer)>>,
}

impl Running {
    /// Returns whether a container of this node runs, by a list that is requested after this call.
    pub(crate) async fn has(&self, engine: &Engine, node_id: &str, container: &str) -> Result<bool, String> {
        let asked = Instant::now();
        let mut latest = self.latest.lock().await;
        if let Some((at, answer)) = &*latest
            && *at >= asked
        {
            return answer.as_ref().map(|ids| ids.contains(container)).map_err(Clone::clone);
        }
        let at = Instant::now();
        let answer = match tokio::time::timeout(PATIENCE, list(engine, node_id)).await {
            Ok(answer) => answer,
            Err(_) => Err(format!("there was no answer for {PATIENCE:?}")),
        };
        *latest = Some((at, answer.clone()));
        answer.map(|ids| ids.contains(container))
    }
}

async fn list(engine: &Engine, node_id: &str) -> Answer {
    let client = engine.client().await.map_err(|error| error.to_string())?;
    let filters = HashMap::from([
        ("label", vec![format!("{NODE_LABEL}={node_id}")]),
        ("status", vec!["running".to_owned()]),
    ]);
    let options = ListContainersOptionsBuilder::default().filters(&filters).build();
    let found = client.list_containers(Some(options)).await.map_err(|error| text(&error))?;
    Ok(Arc::new(found.into_iter().filter_map(|container| container.id).collect()))
}
