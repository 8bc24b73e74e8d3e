//! Evaluations (docs/reference/http-api.md, section 3.2).

use crate::client::Client;
use crate::error::Error;
use crate::query::{QueryOptions, Response, path};
use caravan_types::alloc::AllocListStub;
use caravan_types::eval::Evaluation;

/// The routes of evaluations, from [`Client::evaluations`].
#[derive(Clone, Copy, Debug)]
pub struct Evaluations<'a>(&'a Client);

/// The reasons why allocations are not placed.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct Explanation {
    /// One sentence for each reason.
    pub reasons: Vec<String>,
}

/// The evaluations to delete: by ids or by a filter expression, not both.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct EvalsToDelete {
    /// The full ids of evaluations.
    #[serde(rename = "EvalIDs")]
    pub eval_ids: Vec<String>,
    /// The filter expression; empty if `eval_ids` selects.
    #[serde(rename = "Filter")]
    pub filter: String,
}

/// The result of a deletion.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct EvalsDeleted {
    /// The number of deleted evaluations.
    pub count: u64,
    /// The index of the change.
    pub index: u64,
}

impl Client {
    /// Returns the routes of evaluations.
    pub fn evaluations(&self) -> Evaluations<'_> {
        Evaluations(self)
    }
}

/// Every method fails with [`Error::Status`] when the agent refuses, and otherwise as [`Client::get`].
#[expect(clippy::missing_errors_doc, reason = "documented once for all methods")]
impl Evaluations<'_> {
    /// Lists evaluations.
    pub async fn list(&self, query: &QueryOptions) -> Result<Response<Vec<Evaluation>>, Error> {
        self.0.get("/v1/evaluations", query).await
    }

    /// Deletes evaluations. Scheduling must be paused.
    pub async fn delete(
        &self,
        which: &EvalsToDelete,
        query: &QueryOptions,
    ) -> Result<Response<EvalsDeleted>, Error> {
        self.0.delete_with("/v1/evaluations", query, which).await
    }

    /// Returns an evaluation by its full id. The parameter `related=true` fills `related_evals`.
    pub async fn info(&self, id: &str, query: &QueryOptions) -> Result<Response<Evaluation>, Error> {
        self.0.get(&path("/v1/evaluation/{}", &[id]), query).await
    }

    /// Returns sentences that explain why an evaluation's allocations are not placed, and which changes would place
    /// them. Only Caravan has this route.
    pub async fn explain(&self, id: &str, query: &QueryOptions) -> Result<Response<Explanation>, Error> {
        self.0.get(&path("/v1/evaluation/{}/explain", &[id]), query).await
    }

    /// Lists the allocations that an evaluation created or changed.
    pub async fn allocations(
        &self,
        id: &str,
        query: &QueryOptions,
    ) -> Result<Response<Vec<AllocListStub>>, Error> {
        self.0.get(&path("/v1/evaluation/{}/allocations", &[id]), query).await
    }
}
