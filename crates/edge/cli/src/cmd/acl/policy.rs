//! `acl policy ...`

use crate::cmd::{one, wrong_count};
use crate::ctx::Ctx;
use crate::data::DataArgs;
use crate::error::{Doing as _, Outcome};
use crate::jobfile;
use crate::table::{Pairs, Table};
use caravan_types::acl::{JobAcl, Policy, PolicyStub};
use clap::Subcommand;

/// Subcommands of `acl policy`.
#[derive(Debug, Subcommand)]
pub(crate) enum PolicyVerb {
    /// Create or update a policy
    Apply(ApplyArgs),
    /// Delete a policy
    Delete(NameArgs),
    /// Show a policy
    Info(InfoArgs),
    /// List policies
    List(ListArgs),
    /// List the policies of the token in use
    #[command(name = "self")]
    Own(ListArgs),
}

/// Flags of `acl policy apply`.
#[derive(Debug, clap::Args)]
pub(crate) struct ApplyArgs {
    /// Description of the policy
    #[arg(long, default_value = "", hide_default_value = true)]
    description: String,
    /// Attach the policy to the workloads of this job
    #[arg(long, default_value = "", hide_default_value = true)]
    job: String,
    /// Attach the policy to the workloads of this group of the job
    #[arg(long, default_value = "", hide_default_value = true)]
    group: String,
    /// Attach the policy to this task of the group
    #[arg(long, default_value = "", hide_default_value = true)]
    task: String,
    /// Name of the policy, and a file with its rules or - for standard input
    #[arg(value_name = "NAME PATH", num_args = 0..)]
    args: Vec<String>,
}

/// Arguments that name a policy.
#[derive(Debug, clap::Args)]
pub(crate) struct NameArgs {
    #[arg(value_name = "NAME", num_args = 0..)]
    args: Vec<String>,
}

/// Flags of `acl policy info`.
#[derive(Debug, clap::Args)]
pub(crate) struct InfoArgs {
    #[command(flatten)]
    data: DataArgs,
    /// Name of the policy
    #[arg(value_name = "NAME", num_args = 0..)]
    args: Vec<String>,
}

/// Flags of `acl policy list`.
#[derive(Debug, clap::Args)]
pub(crate) struct ListArgs {
    #[command(flatten)]
    data: DataArgs,
}

pub(crate) async fn run(ctx: &Ctx, verb: &PolicyVerb) -> Outcome {
    match verb {
        PolicyVerb::Apply(args) => apply(ctx, args).await,
        PolicyVerb::Delete(args) => delete(ctx, args).await,
        PolicyVerb::Info(args) => info(ctx, args).await,
        PolicyVerb::List(args) => {
            let rows = ctx.client.acl().policies(&ctx.query()).await;
            list(ctx, args, rows.doing("Error listing ACL policies")?.value)
        }
        PolicyVerb::Own(args) => {
            let rows = ctx.client.acl().own_policies(&ctx.query()).await;
            list(ctx, args, rows.doing("Error listing ACL policies")?)
        }
    }
}

async fn apply(ctx: &Ctx, args: &ApplyArgs) -> Outcome {
    let [name, path] = args.args.as_slice() else {
        return Err(wrong_count(&args.args, 2, "This command takes two arguments: <name> <path>"));
    };
    let rules = jobfile::read_as(path, "Error reading file")?;
    let namespaced = !args.job.is_empty() || !args.group.is_empty() || !args.task.is_empty();
    let job_acl = namespaced.then(|| JobAcl {
        namespace: match ctx.client.namespace() {
            "" => "default".to_owned(),
            namespace => namespace.to_owned(),
        },
        job_id: args.job.clone(),
        group: args.group.clone(),
        task: args.task.clone(),
    });
    let policy = Policy {
        name: name.clone(),
        description: args.description.clone(),
        rules,
        job_acl,
        ..Policy::default()
    };
    ctx.client.acl().write_policy(&policy, &ctx.query()).await.doing("Error writing ACL policy")?;
    ctx.out.line(&format!("Successfully wrote \"{name}\" ACL policy!"));
    Ok(0)
}

async fn delete(ctx: &Ctx, args: &NameArgs) -> Outcome {
    let name = one(&args.args, "This command takes one argument: <name>")?;
    ctx.client.acl().delete_policy(name, &ctx.query()).await.doing("Error deleting ACL policy")?;
    ctx.out.line(&format!("Successfully deleted {name} policy!"));
    Ok(0)
}

async fn info(ctx: &Ctx, args: &InfoArgs) -> Outcome {
    let name = one(&args.args, "This command takes one argument: <name>")?;
    let policy = ctx.client.acl().policy(name, &ctx.query()).await;
    let policy = policy.doing("Error fetching info on ACL policy")?.value;
    if let Some(shown) = args.data.show(ctx, &policy) {
        return shown;
    }
    ctx.out.line(&shown(&policy));
    Ok(0)
}

fn shown(policy: &Policy) -> String {
    let mut pairs = Pairs::new()
        .pair("Name", &policy.name)
        .pair("Description", &policy.description)
        .pair("CreateIndex", policy.create_index.to_string())
        .pair("ModifyIndex", policy.modify_index.to_string());
    if let Some(job) = &policy.job_acl {
        pairs.push("Namespace", &job.namespace);
        pairs.push("JobID", &job.job_id);
        pairs.push("Group", &job.group);
        pairs.push("Task", &job.task);
    }
    format!("{}\n\nRules\n\n{}\n", pairs.render(), policy.rules)
}

fn list(ctx: &Ctx, args: &ListArgs, rows: Vec<PolicyStub>) -> Outcome {
    let rows: Vec<PolicyStub> =
        rows.into_iter().map(|row| PolicyStub { hash: String::new(), ..row }).collect();
    if let Some(shown) = args.data.show(ctx, &rows) {
        return shown;
    }
    if rows.is_empty() {
        ctx.out.line("No policies found");
        return Ok(0);
    }
    let cells = rows.into_iter().map(|row| vec![row.name, row.description]);
    ctx.out.line(&Table::new(&["Name", "Description"]).rows(cells).render());
    Ok(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_policy_reads_like_the_recorded_one() {
        let policy = Policy {
            name: "readonly".into(),
            description: "look only".into(),
            rules: "node {\n  policy = \"read\"\n}\n".into(),
            create_index: 11,
            modify_index: 11,
            ..Policy::default()
        };
        assert_eq!(
            shown(&policy),
            "Name        = readonly\nDescription = look only\nCreateIndex = 11\nModifyIndex = 11\n\nRules\n\nnode {\n  policy = \"read\"\n}\n\n"
        );
    }
}
