//! Variables (docs/reference/http-api.md, section 5.9).

use crate::client::Client;
use crate::error::Error;
use crate::query::{QueryOptions, Response, path};
use caravan_types::ser::Secrets;
use caravan_types::variable::{VariableDecrypted, VariableLock, VariableMetadata};

/// On which condition a variable is changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CheckIndex {
    /// On none.
    Force,
    /// Only if it was last changed there; 0: only if it is new.
    At(u64),
}

/// What a write came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Written {
    /// It is as asked.
    Done(Box<VariableDecrypted>),
    /// The condition does not hold: the variable as it is.
    Conflict(Box<VariableDecrypted>),
}

/// Routes of variables.
#[derive(Clone, Copy, Debug)]
pub struct Variables<'a>(&'a Client);

impl Client {
    /// Routes of variables.
    pub fn variables(&self) -> Variables<'_> {
        Variables(self)
    }
}

/// Slashes of a path are part of the address.
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

/// A conflict is an answer, whose body is the variable.
fn conflict(error: Error) -> Result<Box<VariableDecrypted>, Error> {
    match &error {
        Error::Status { code: 409, body } => serde_json::from_str(body).map(Box::new).map_err(|_| error),
        _ => Err(error),
    }
}

/// Every method fails with [`Error::Status`] when the agent refuses, and otherwise as [`Client::get`].
#[expect(clippy::missing_errors_doc, reason = "told once for all methods")]
impl Variables<'_> {
    /// Lists variables, without their items.
    pub async fn list(&self, query: &QueryOptions) -> Result<Response<Vec<VariableMetadata>>, Error> {
        self.0.get("/v1/vars", query).await
    }

    /// A variable with its items.
    pub async fn read(
        &self,
        variable: &str,
        query: &QueryOptions,
    ) -> Result<Response<VariableDecrypted>, Error> {
        self.0.get(&address(variable), query).await
    }

    /// Writes a variable.
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

    /// Takes the lock of a variable, which is made with `items` if it is not there. The lock's id is made by the
    /// servers.
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

    /// Goes on holding the lock of an id.
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

    /// Gives up the lock of an id.
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

    /// Removes a variable; one that is not there is as wished. Answers the variable if the condition does
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
