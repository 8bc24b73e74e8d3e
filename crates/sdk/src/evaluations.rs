//! Evaluations (docs/reference/http-api.md, section 3.2).

use crate::client::Client;
use crate::error::Error;
use crate::query::{QueryOptions, Response, path};
use caravan_types::alloc::AllocListStub;
use caravan_types::eval::Evaluation;

/// Routes of evaluations.
#[derive(Clone, Copy, Debug)]
pub struct Evaluations<'a>(&'a Client);

/// Why something is not placed.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct Explanation {
    /// Sentences.
    pub reasons: Vec<String>,
}

/// Which evaluations are to be deleted: by id or by an expression, not both.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct EvalsToDelete {
    /// Whole ids.
    #[serde(rename = "EvalIDs")]
    pub eval_ids: Vec<String>,
    /// Filter expression; empty: by id.
    #[serde(rename = "Filter")]
    pub filter: String,
}

/// What came of a deletion.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct EvalsDeleted {
    /// How many.
    pub count: u64,
    /// Index of the change.
    pub index: u64,
}

impl Client {
    /// Routes of evaluations.
    pub fn evaluations(&self) -> Evaluations<'_> {
        Evaluations(self)
    }
}

/// Every method fails with [`Error::Status`] when the agent refuses, and otherwise as [`Client::get`].
#[expect(clippy::missing_errors_doc, reason = "told once for all methods")]
impl Evaluations<'_> {
    /// Lists evaluations.
    pub async fn list(&self, query: &QueryOptions) -> Result<Response<Vec<Evaluation>>, Error> {
        self.0.get("/v1/evaluations", query).await
    }

    /// Deletes evaluations. Scheduling has to be paused.
    pub async fn delete(
        &self,
        which: &EvalsToDelete,
        query: &QueryOptions,
    ) -> Result<Response<EvalsDeleted>, Error> {
        self.0.delete_with("/v1/evaluations", query, which).await
    }

    /// An evaluation, by its whole id. Parameter `related=true` fills `related_evals`.
    pub async fn info(&self, id: &str, query: &QueryOptions) -> Result<Response<Evaluation>, Error> {
        self.0.get(&path("/v1/evaluation/{}", &[id]), query).await
    }

    /// Why what an evaluation was about is not placed, and what would change it, in sentences. Only Caravan answers
    /// this.
    pub async fn explain(&self, id: &str, query: &QueryOptions) -> Result<Response<Explanation>, Error> {
        self.0.get(&path("/v1/evaluation/{}/explain", &[id]), query).await
    }

    /// Allocations that an evaluation made or changed.
    pub async fn allocations(
        &self,
        id: &str,
        query: &QueryOptions,
    ) -> Result<Response<Vec<AllocListStub>>, Error> {
        self.0.get(&path("/v1/evaluation/{}/allocations", &[id]), query).await
    }
}
