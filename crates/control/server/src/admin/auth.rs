//! Auth methods and their binding rules.

use super::fault::{AdminFault, RowProblem};
use super::{Admin, hash_of};
use crate::core::new_id;
use crate::error::ServerError;
use crate::selector::Selector;
use caravan_types::acl::{AuthMethod, BindingRule};
use caravan_types::admin::AdminChange;
use std::sync::Arc;

/// The token name format of methods that specify none.
const TOKEN_NAME: &str = "${auth_method_type}-${auth_method_name}";

impl Admin {
    /// Creates or updates an auth method. Fields that the change omits keep their values.
    ///
    /// # Errors
    /// If the request has problems; the error contains all of them.
    pub async fn write_auth_method(
        &self,
        mut method: AuthMethod,
    ) -> Result<(Arc<AuthMethod>, u64), ServerError> {
        if let Some(before) = self.core.snapshot().auth_method(&method.name) {
            method.merge(before);
        }
        if let Err(problems) = method.check(self.life()) {
            return Err(AdminFault::invalid("auth method", problems).into());
        }
        if method.token_name_format.is_empty() {
            method.token_name_format = TOKEN_NAME.to_owned();
        }
        (method.create_index, method.modify_index, method.hash) = (0, 0, String::new());
        method.hash = hash_of(&method);
        let name = method.name.clone();
        let change = AdminChange::AuthMethodWrite(Box::new(method));
        let index = self.commit_as(change, AdminFault::BadRequest).await?;
        let root = self.core.snapshot();
        let method = root.auth_method(&name).cloned();
        Ok((method.ok_or(AdminFault::Removed("auth-method"))?, index))
    }

    /// Removes an auth method with its binding rules.
    ///
    /// # Errors
    /// If the method does not exist.
    pub async fn delete_auth_method(&self, name: String) -> Result<u64, ServerError> {
        self.commit(AdminChange::AuthMethodDelete(name)).await
    }

    /// Creates or updates a binding rule. Fields that the change omits keep their values.
    ///
    /// # Errors
    /// If the request has problems; the error contains all of them.
    pub async fn write_binding_rule(
        &self,
        mut rule: BindingRule,
    ) -> Result<(Arc<BindingRule>, u64), ServerError> {
        if rule.id.is_empty() {
            rule.id = new_id();
        } else {
            let root = self.core.snapshot();
            let before = root.binding_rule(&rule.id);
            rule.merge(before.ok_or_else(|| AdminFault::NoBindingRule(rule.id.clone()))?);
        }
        let mut problems = RowProblem::rows(rule.check().err().unwrap_or_default());
        if let Err(reason) = Selector::parse(&rule.selector) {
            problems.push(RowProblem::Selector(reason));
        }
        if !problems.is_empty() {
            return Err(AdminFault::Invalid { row: "binding rule", problems }.into());
        }
        (rule.create_index, rule.modify_index, rule.hash) = (0, 0, String::new());
        rule.hash = hash_of(&rule);
        let id = rule.id.clone();
        let index =
            self.commit_as(AdminChange::BindingRuleWrite(Box::new(rule)), AdminFault::BadRequest).await?;
        let root = self.core.snapshot();
        let rule = root.binding_rule(&id).cloned();
        Ok((rule.ok_or(AdminFault::Removed("binding rule"))?, index))
    }

    /// Removes a binding rule.
    ///
    /// # Errors
    /// If the rule does not exist.
    pub async fn delete_binding_rule(&self, id: String) -> Result<u64, ServerError> {
        self.commit(AdminChange::BindingRuleDelete(id)).await
    }
}
