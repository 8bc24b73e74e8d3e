//! `acl auth-method ...` and `acl binding-rule ...`

use super::text_of;
use crate::cmd::one;
use crate::ctx::Ctx;
use crate::data::DataArgs;
use crate::error::{CliError, Doing as _, Outcome};
use crate::format::go_time;
use crate::table::{Pairs, Table};
use caravan_types::acl::{AuthConfig, AuthMethod, BindingRule};
use caravan_types::duration::{self, GoDuration};
use clap::Subcommand;
use std::collections::BTreeMap;

/// Subcommands of `acl auth-method`.
#[derive(Debug, Subcommand)]
pub(crate) enum MethodVerb {
    /// Create an auth method
    Create(MethodArgs),
    /// Update an auth method
    Update(MethodArgs),
    /// Delete an auth method
    Delete(NameArgs),
    /// Show an auth method
    Info(InfoArgs),
    /// List auth methods
    List(ListArgs),
}

/// Flags that describe an auth method.
#[derive(Debug, clap::Args)]
pub(crate) struct MethodArgs {
    /// Name of the auth method
    #[arg(long, default_value = "", hide_default_value = true)]
    name: String,
    /// Type of the auth method: OIDC or JWT
    #[arg(long = "type", default_value = "", hide_default_value = true)]
    kind: String,
    /// Longest time to live of a token that a login creates
    #[arg(long, value_name = "DURATION", default_value = "", hide_default_value = true)]
    max_token_ttl: String,
    /// Locality of the tokens that logins create: local or global
    #[arg(long, default_value = "", hide_default_value = true)]
    token_locality: String,
    /// Format of the names of the tokens that logins create
    #[arg(long, default_value = "", hide_default_value = true)]
    token_name_format: String,
    /// Use this method for logins that name no method
    #[arg(long = "default")]
    is_default: bool,
    /// Configuration of the method: JSON, @file, or - for standard input
    #[arg(long, value_name = "JSON")]
    config: Option<String>,
    #[command(flatten)]
    data: DataArgs,
    /// Name of the method to update
    #[arg(value_name = "NAME", num_args = 0..)]
    args: Vec<String>,
}

/// Arguments that name an auth method or a binding rule.
#[derive(Debug, clap::Args)]
pub(crate) struct NameArgs {
    #[arg(value_name = "NAME", num_args = 0..)]
    args: Vec<String>,
}

/// Flags of `acl auth-method info` and `acl binding-rule info`.
#[derive(Debug, clap::Args)]
pub(crate) struct InfoArgs {
    #[command(flatten)]
    data: DataArgs,
    #[arg(value_name = "NAME", num_args = 0..)]
    args: Vec<String>,
}

/// Flags of `acl auth-method list` and `acl binding-rule list`.
#[derive(Debug, clap::Args)]
pub(crate) struct ListArgs {
    #[command(flatten)]
    data: DataArgs,
}

/// Subcommands of `acl binding-rule`.
#[derive(Debug, Subcommand)]
pub(crate) enum RuleVerb {
    /// Create a binding rule
    Create(RuleArgs),
    /// Update a binding rule
    Update(RuleArgs),
    /// Delete a binding rule
    Delete(NameArgs),
    /// Show a binding rule
    Info(InfoArgs),
    /// List binding rules
    List(ListArgs),
}

/// Flags that describe a binding rule.
#[derive(Debug, clap::Args)]
pub(crate) struct RuleArgs {
    /// Description of the binding rule
    #[arg(long, default_value = "", hide_default_value = true)]
    description: String,
    /// Auth method that the rule applies to
    #[arg(long, default_value = "", hide_default_value = true)]
    auth_method: String,
    /// Expression over the claims of a login; the rule applies if it matches
    #[arg(long, default_value = "", hide_default_value = true)]
    selector: String,
    /// What the rule binds: role, policy or management
    #[arg(long, default_value = "", hide_default_value = true)]
    bind_type: String,
    /// Name of the role or policy to bind
    #[arg(long, default_value = "", hide_default_value = true)]
    bind_name: String,
    #[command(flatten)]
    data: DataArgs,
    /// Id of the rule to update
    #[arg(value_name = "ID", num_args = 0..)]
    args: Vec<String>,
}

pub(crate) async fn method(ctx: &Ctx, verb: &MethodVerb) -> Outcome {
    let acl = ctx.client.acl();
    match verb {
        MethodVerb::Create(args) => {
            let method = described(args, &args.name)?;
            let method = acl.write_auth_method(&method, false, &ctx.query()).await;
            show_method(ctx, &args.data, &method.doing("Error creating ACL auth method")?)
        }
        MethodVerb::Update(args) => {
            let name = one(&args.args, "This command takes one argument: <acl_auth_method_name>")?;
            let method = described(args, name)?;
            let method = acl.write_auth_method(&method, true, &ctx.query()).await;
            show_method(ctx, &args.data, &method.doing("Error updating ACL auth method")?)
        }
        MethodVerb::Delete(args) => {
            let name = one(&args.args, "This command takes one argument: <acl_auth_method_name>")?;
            acl.delete_auth_method(name, &ctx.query()).await.doing("Error deleting ACL auth method")?;
            ctx.out.line(&format!("ACL auth method {name} successfully deleted"));
            Ok(0)
        }
        MethodVerb::Info(args) => {
            let name = one(&args.args, "This command takes one argument: <acl_auth_method_name>")?;
            let method = acl.auth_method(name, &ctx.query()).await;
            show_method(ctx, &args.data, &method.doing("Error reading ACL auth method")?)
        }
        MethodVerb::List(args) => {
            let rows = acl.auth_methods(&ctx.query()).await.doing("Error listing ACL auth methods")?;
            if let Some(shown) = args.data.show(ctx, &rows) {
                return shown;
            }
            if rows.is_empty() {
                ctx.out.line("No ACL auth methods found");
                return Ok(0);
            }
            let cells = rows.into_iter().map(|row| vec![row.name, row.kind, row.default.to_string()]);
            ctx.out.line(&Table::new(&["Name", "Type", "Default"]).rows(cells).render());
            Ok(0)
        }
    }
}

fn described(args: &MethodArgs, name: &str) -> Result<AuthMethod, CliError> {
    let max_token_ttl = match args.max_token_ttl.as_str() {
        "" => GoDuration::default(),
        text => GoDuration(
            duration::parse(text)
                .ok_or_else(|| CliError::failed(format!("Error parsing TTL: {}", duration::invalid(text))))?,
        ),
    };
    let config = match &args.config {
        None => None,
        Some(supplied) => {
            let text = text_of(supplied, "the configuration")?;
            let config: AuthConfig = serde_json::from_str(&text)
                .map_err(|error| CliError::failed(format!("Unable to parse config: {error}")))?;
            Some(config)
        }
    };
    Ok(AuthMethod {
        name: name.to_owned(),
        kind: args.kind.clone(),
        token_locality: args.token_locality.clone(),
        token_name_format: args.token_name_format.clone(),
        max_token_ttl,
        default: args.is_default,
        config,
        ..AuthMethod::default()
    })
}

fn listed(list: Option<&Vec<String>>) -> String {
    list.map(|list| list.join(",")).unwrap_or_default()
}

fn mapped(map: &BTreeMap<String, String>) -> String {
    if map.is_empty() {
        return String::new();
    }
    let pairs: Vec<String> = map.iter().map(|(key, value)| format!("{key}: {value}")).collect();
    format!("{{{}}}", pairs.join("; "))
}

fn show_method(ctx: &Ctx, data: &DataArgs, method: &AuthMethod) -> Outcome {
    if let Some(shown) = data.show(ctx, method) {
        return shown;
    }
    let head = Pairs::new()
        .pair("Name", &method.name)
        .pair("Type", &method.kind)
        .pair("Locality", &method.token_locality)
        .pair("Max Token TTL", method.max_token_ttl.0.to_string())
        .pair("Token Name Format", &method.token_name_format)
        .pair("Default", method.default.to_string())
        .pair("Create Index", method.create_index.to_string())
        .pair("Modify Index", method.modify_index.to_string());
    let config = method.config.clone().unwrap_or_default();
    let keys = config.jwt_validation_pub_keys.as_ref().map(|keys| keys.join("\n")).unwrap_or_default();
    let body = Pairs::new()
        .pair("JWT Validation Public Keys", keys.trim_end())
        .pair("JWKS URL", &config.jwks_url)
        .pair("OIDC Discovery URL", &config.oidc_discovery_url)
        .pair("OIDC Client ID", &config.oidc_client_id)
        .pair("OIDC Client Secret", config.oidc_client_secret.expose())
        .pair("OIDC Enable PKCE", config.oidc_enable_pkce.to_string())
        .pair("OIDC Disable UserInfo", config.oidc_disable_user_info.to_string())
        .pair("OIDC Scopes", listed(config.oidc_scopes.as_ref()))
        .pair("Bound audiences", listed(config.bound_audiences.as_ref()))
        .pair("Bound issuer", listed(config.bound_issuer.as_ref()))
        .pair("Allowed redirects URIs", listed(config.allowed_redirect_uris.as_ref()))
        .pair("Discovery CA pem", listed(config.discovery_ca_pem.as_ref()))
        .pair("JWKS CA cert", &config.jwks_ca_cert)
        .pair("Signing algorithms", listed(config.signing_algs.as_ref()))
        .pair("Expiration Leeway", config.expiration_leeway.0.to_string())
        .pair("NotBefore Leeway", config.not_before_leeway.0.to_string())
        .pair("ClockSkew Leeway", config.clock_skew_leeway.0.to_string())
        .pair("Claim mappings", mapped(&config.claim_mappings))
        .pair("List claim mappings", mapped(&config.list_claim_mappings));
    ctx.out.line(&format!("{}\n\nAuth Method Config\n\n{}", head.render(), body.render()));
    Ok(0)
}

pub(crate) async fn rule(ctx: &Ctx, verb: &RuleVerb) -> Outcome {
    let acl = ctx.client.acl();
    let supplied = |args: &RuleArgs, id: &str| BindingRule {
        id: id.to_owned(),
        description: args.description.clone(),
        auth_method: args.auth_method.clone(),
        selector: args.selector.clone(),
        bind_type: args.bind_type.clone(),
        bind_name: args.bind_name.clone(),
        ..BindingRule::default()
    };
    match verb {
        RuleVerb::Create(args) => {
            if args.auth_method.is_empty() {
                return Err(CliError::failed(
                    "ACL binding rule auth method must be specified using the -auth-method flag",
                ));
            }
            if args.bind_type.is_empty() {
                return Err(CliError::failed(
                    "ACL binding rule bind type must be specified using the -bind-type flag",
                ));
            }
            let rule = acl.write_binding_rule(&supplied(args, ""), &ctx.query()).await;
            show_rule(ctx, &args.data, &rule.doing("Error creating ACL binding rule")?)
        }
        RuleVerb::Update(args) => {
            let id = one(&args.args, "This command takes one argument: <acl_binding_rule_id>")?;
            let before = acl.binding_rule(id, &ctx.query()).await.doing("Error reading ACL binding rule")?;
            let mut rule = supplied(args, &before.id);
            if rule.selector.is_empty() {
                rule.selector.clone_from(&before.selector);
            }
            let rule = acl.write_binding_rule(&rule, &ctx.query()).await;
            show_rule(ctx, &args.data, &rule.doing("Error updating ACL binding rule")?)
        }
        RuleVerb::Delete(args) => {
            let id = one(&args.args, "This command takes one argument: <acl_binding_rule_id>")?;
            acl.delete_binding_rule(id, &ctx.query()).await.doing("Error deleting ACL binding rule")?;
            ctx.out.line(&format!("ACL binding rule {id} successfully deleted"));
            Ok(0)
        }
        RuleVerb::Info(args) => {
            let id = one(&args.args, "This command takes one argument: <acl_binding_rule_id>")?;
            let rule = acl.binding_rule(id, &ctx.query()).await;
            show_rule(ctx, &args.data, &rule.doing("Error reading ACL binding rule")?)
        }
        RuleVerb::List(args) => {
            let rows = acl.binding_rules(&ctx.query()).await.doing("Error listing ACL binding rules")?;
            if let Some(shown) = args.data.show(ctx, &rows) {
                return shown;
            }
            if rows.is_empty() {
                ctx.out.line("No ACL binding rules found");
                return Ok(0);
            }
            let cells = rows.into_iter().map(|row| vec![row.id, row.description, row.auth_method]);
            ctx.out.line(&Table::new(&["ID", "Description", "Auth Method"]).rows(cells).render());
            Ok(0)
        }
    }
}

fn show_rule(ctx: &Ctx, data: &DataArgs, rule: &BindingRule) -> Outcome {
    if let Some(shown) = data.show(ctx, rule) {
        return shown;
    }
    let selector = if rule.selector.is_empty() { String::new() } else { format!("{:?}", rule.selector) };
    let pairs = Pairs::new()
        .pair("ID", &rule.id)
        .pair("Description", &rule.description)
        .pair("Auth Method", &rule.auth_method)
        .pair("Selector", selector)
        .pair("Bind Type", &rule.bind_type)
        .pair("Bind Name", &rule.bind_name)
        .pair("Create Time", go_time(rule.create_time))
        .pair("Modify Time", go_time(rule.modify_time))
        .pair("Create Index", rule.create_index.to_string())
        .pair("Modify Index", rule.modify_index.to_string());
    ctx.out.line(&pairs.render());
    Ok(0)
}
