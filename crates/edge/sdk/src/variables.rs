//! Variables (docs/reference/http-api.md, section 5.9).

use crate::client::Client;
use crate::error::Error;
use crate::query::{QueryOptions, Response, path};
use caravan_types::ser::Secrets;
use caravan_types::variable::{VariableDecrypted, VariableLock, VariableMetadata};

/// The condition of a variable's change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CheckIndex {
    /// No condition.
    Force,
    /// Changes only if the variable's modify index has this value; 0 requires that the variable does not exist.
    At(u64),
}

/// The result of a write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Written {
    /// The variable after the write.
    Done(Box<VariableDecrypted>),
    /// The condition does not hold; this is the current variable.
    Conflict(Box<VariableDecrypted>),
}

/// The routes of variables, from [`Client::variables`].
#[derive(Clone, Copy, Debug)]
pub struct Variables<'a>(&'a Client);

impl Client {
    /// Returns the routes of variables.
    pub fn variables(&self) -> Variables<'_> {
        Variables(self)
    }
}

/// Builds the route of a variable; the slashes of its path stay unescaped.
fn address(variable: &str) -> String {
    let segments: Vec<String> = variable.split('/').map(|segment| path("{}", &[segment])).collect();
    format!("/v1/var/{}", segments.join("/"))
}

fn conditional(query: &QueryOptions, check: CheckIndex) -> QueryOptions {
    match check {
        CheckIndex::Force => query.clone(),
        CheckIndex::At(index) => query.clone().param("cas", index.to_string()),
    }
}

/// Decodes a conflict: its body is the current variable.
fn conflict(error: Error) -> Result<Box<VariableDecrypted>, Error> {
    match &error {
        Error::Status { code: 409, body, .. } => serde_json::from_str(body).map(Box::new).map_err(|_| error),
        _ => Err(error),
    }
}

/// Every method fails with [`Error::Status`] when the agent refuses, and otherwise as [`Client::get`].
#[expect(clippy::missing_errors_doc, reason = "documented once for all methods")]
impl Variables<'_> {
    /// Lists variables, without their items.
    pub async fn list(&self, query: &QueryOptions) -> Result<Response<Vec<VariableMetadata>>, Error> {
        self.0.get("/v1/vars", query).await
    }

    /// Returns a variable with its items.
    pub async fn read(
        &self,
        variable: &str,
        query: &QueryOptions,
    ) -> Result<Response<VariableDecrypted>, Error> {
        self.0.get(&address(variable), query).await
    }

    /// Creates or replaces a variable.
    pub async fn write(
        &self,
        variable: &str,
        items: &Secrets,
        check: CheckIndex,
        query: &QueryOptions,
    ) -> Result<Written, Error> {
        let body = serde_json::json!({"Path": variable, "Items": items});
        let done = self.0.put(&address(variable), &conditional(query, check), &body).await;
        match done {
            Ok(answer) => Ok(Written::Done(Box::new(answer.value))),
            Err(error) => conflict(error).map(Written::Conflict),
        }
    }

    /// Acquires the lock of a variable. Creates the variable with `items` if it does not exist. The servers generate
    /// the lock's id.
    pub async fn acquire_lock(
        &self,
        variable: &str,
        items: &Secrets,
        lock: &VariableLock,
        query: &QueryOptions,
    ) -> Result<Written, Error> {
        let mut body = serde_json::json!({"Path": variable, "Lock": lock});
        if !items.is_empty() {
            body["Items"] = serde_json::json!(items);
        }
        let query = query.clone().param("lock-acquire", "");
        match self.0.put(&address(variable), &query, &body).await {
            Ok(answer) => Ok(Written::Done(Box::new(answer.value))),
            Err(error) => conflict(error).map(Written::Conflict),
        }
    }

    /// Renews a lock by its id.
    pub async fn renew_lock(
        &self,
        variable: &str,
        id: &str,
        query: &QueryOptions,
    ) -> Result<VariableMetadata, Error> {
        let body = serde_json::json!({"Path": variable, "Lock": {"ID": id}});
        let query = query.clone().param("lock-renew", "");
        Ok(self.0.put(&address(variable), &query, &body).await?.value)
    }

    /// Releases a lock by its id.
    pub async fn release_lock(
        &self,
        variable: &str,
        id: &str,
        query: &QueryOptions,
    ) -> Result<VariableMetadata, Error> {
        let body = serde_json::json!({"Path": variable, "Lock": {"ID": id}});
        let query = query.clone().param("lock-release", "");
        Ok(self.0.put(&address(variable), &query, &body).await?.value)
    }

    /// Deletes a variable; succeeds if the variable does not exist. Returns the variable if the condition does
    /// not hold.
    pub async fn delete(
        &self,
        variable: &str,
        check: CheckIndex,
        query: &QueryOptions,
    ) -> Result<Option<Box<VariableDecrypted>>, Error> {
        let done = self.0.delete::<()>(&address(variable), &conditional(query, check)).await;
        match done {
            Ok(_) => Ok(None),
            Err(error) => conflict(error).map(Some),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slashes_stay_and_the_rest_is_escaped() {
        assert_eq!(address("app/a b"), "/v1/var/app/a%20b");
    }
}
