//! Flags that several verbs have.

use crate::ctx::Ctx;
use caravan_sdk::{Meta, QueryOptions};

/// Flags of lists that can be told page by page.
#[derive(Clone, Debug, Default, clap::Args)]
pub(crate) struct PageArgs {
    /// In the list: only what fits the expression
    #[arg(long, value_name = "EXPRESSION")]
    filter: Option<String>,
    /// In the list: how many to show at once
    #[arg(long, value_name = "N")]
    per_page: Option<u32>,
    /// In the list: where to start, as told at the end of the page before
    #[arg(long, value_name = "TOKEN")]
    page_token: Option<String>,
}

impl PageArgs {
    /// A query for the page.
    pub(crate) fn over(&self, mut query: QueryOptions) -> QueryOptions {
        query.filter = self.filter.clone().unwrap_or_default();
        query.per_page = self.per_page.unwrap_or(0);
        query.next_token = self.page_token.clone().unwrap_or_default();
        query
    }
}

/// Says how the next page is got, if there is one.
pub(crate) fn more(ctx: &Ctx, meta: &Meta) {
    if !meta.next_token.is_empty() {
        ctx.out.line(&format!(
            "\nResults have been paginated. To get the next page run with:\n\n-page-token {}",
            meta.next_token
        ));
    }
}

/// The flag of verbs that show an object which has a page in the browser.
#[derive(Clone, Copy, Debug, Default, clap::Args)]
pub(crate) struct BrowserArgs {
    /// Open the object's page in the browser
    #[arg(long)]
    pub(crate) ui: bool,
}
