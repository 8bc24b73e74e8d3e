//! The logs of a job or of one of its groups as one stream (docs/design/http-api.md, "Logs of groups").

use crate::error::Error;
use crate::events::JsonLines;
use crate::overview::Caravan;
use crate::query::QueryOptions;
use bytes::Bytes;
use http::Method;
use serde::Deserialize;

const PATH: &str = "/v1/caravan/logs";

/// An output of a task in a stream of logs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct GroupLogSource {
    /// The number by which lines name the output.
    #[serde(rename = "ID")]
    pub id: u32,
    /// The id of the allocation.
    #[serde(rename = "AllocID")]
    pub alloc_id: String,
    /// The name of the allocation.
    pub alloc_name: String,
    /// The name of the group.
    pub task_group: String,
    /// The name of the task.
    pub task: String,
    /// `stdout` or `stderr`.
    #[serde(rename = "Type")]
    pub output: String,
    /// The name of the node.
    pub node_name: String,
    /// `open`, `ended` or `failed`.
    pub state: String,
    /// The reason of the failure; empty for other states.
    pub reason: String,
}

/// The numbers of outputs that a stream leaves out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct GroupLogOmitted {
    /// Outputs of tasks that run.
    pub running: u64,
    /// Outputs of tasks that had ended.
    pub ended: u64,
}

/// A message of a stream of logs.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(from = "Raw")]
pub enum GroupLogMessage {
    /// All outputs, after each change.
    Outputs {
        /// The outputs that are followed; at most 16.
        sources: Vec<GroupLogSource>,
        /// The numbers of outputs that the stream leaves out.
        omitted: GroupLogOmitted,
        /// The most outputs that the stream reads at the same time.
        most: u64,
        /// The value of the parameter `since` with which a later stream continues.
        since: u64,
    },
    /// Lines of one output.
    Lines {
        /// The number of the output.
        id: u32,
        /// The lines, without their ends.
        lines: Vec<String>,
        /// The place after the lines: the end of the parameter `after` with which a later stream continues.
        at: String,
    },
    /// A heartbeat.
    Alive,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Raw {
    sources: Option<Vec<GroupLogSource>>,
    #[serde(default)]
    omitted: GroupLogOmitted,
    #[serde(default)]
    most: u64,
    #[serde(rename = "ID")]
    id: Option<u32>,
    #[serde(default)]
    since: u64,
    #[serde(default)]
    lines: Vec<String>,
    #[serde(default)]
    at: String,
}

impl From<Raw> for GroupLogMessage {
    fn from(raw: Raw) -> Self {
        match (raw.sources, raw.id) {
            (Some(sources), _) => {
                Self::Outputs { sources, omitted: raw.omitted, most: raw.most, since: raw.since }
            }
            (None, Some(id)) => Self::Lines { id, lines: raw.lines, at: raw.at },
            (None, None) => Self::Alive,
        }
    }
}

/// A stream of logs, from [`Caravan::logs`].
#[derive(Debug)]
pub struct GroupLogStream(JsonLines);

impl GroupLogStream {
    /// Returns the next message; `None` at the end. Cancel-safe between messages: dropping the future loses nothing.
    ///
    /// # Errors
    /// Fails if the connection breaks or the stream does not consist of messages.
    pub async fn next(&mut self) -> Result<Option<GroupLogMessage>, Error> {
        self.0.next().await
    }
}

impl Caravan<'_> {
    /// Follows the logs of a job: outputs of tasks join as the tasks start. Parameters: `group`, `task`, `type`
    /// (`stdout`, `stderr`, `both`), `offset`, and `follow=false` for the logs so far. A later stream continues
    /// without gaps and repetitions with `since` and, for each output, `after` (`<allocation>/<task>/<type>/<at>`).
    ///
    /// # Errors
    /// As [`crate::Client::get`].
    pub async fn logs(&self, job: &str, query: &QueryOptions) -> Result<GroupLogStream, Error> {
        let query = query.clone().param("job_id", job);
        let answer = self.0.send(Method::GET, PATH, &query, &[], Bytes::new()).await?;
        Ok(GroupLogStream(JsonLines::new(self.0.clone(), PATH, answer.into_body())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_read() {
        let read = |text: &str| serde_json::from_str::<GroupLogMessage>(text).unwrap();
        let GroupLogMessage::Outputs { sources, omitted, most, since } = read(
            r#"{"Sources":[{"ID":3,"AllocID":"a","Type":"stderr","State":"open"}],"Omitted":{"Running":2},"Most":16,"Since":7}"#,
        ) else {
            panic!("outputs were expected");
        };
        assert_eq!((sources[0].id, sources[0].output.as_str(), omitted.running), (3, "stderr", 2));
        assert_eq!((most, since), (16, 7));
        let lines = GroupLogMessage::Lines { id: 0, lines: vec!["x".into()], at: "3.1200".into() };
        assert_eq!(read(r#"{"ID":0,"Lines":["x"],"At":"3.1200"}"#), lines);
        assert_eq!(read("{}"), GroupLogMessage::Alive);
    }
}
