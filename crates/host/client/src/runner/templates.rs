//! The templates of a task: rendered before it starts, kept current while it runs, with a notification of the task on
//! changes. `caravan-templates` renders the text; this module looks up the data, writes the files and notifies.
//!
//! Every waiting future may be dropped at any time: the progress is in [`TaskTemplates`], and a notification is only
//! recorded after it was delivered ([`TaskTemplates::carried_out`]). That record is next to the task's `secrets`, so
//! that a restarted agent notifies the task exactly once.

pub(super) mod act;
mod feed;
mod note;
pub(super) mod place;
mod spec;

use super::alloc_state::AllocState;
use super::plan::{Plan, Planner};
use crate::clock;
use crate::servers::Link;
use caravan_sys::dir::{Access, Owner};
use caravan_templates::{Fault, Inputs, Need, Rendered, env_file, render};
use caravan_types::alloc::{TaskEvent, event};
use feed::Feed;
use note::{Digest, Note};
use place::Places;
use spec::{ChangeMode, Script, Spec};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::time::{Instant, sleep_until, timeout};

/// The timeout of one rendering.
const RENDER: Duration = Duration::from_secs(10);
/// The stack size of the rendering thread, because templates nest deeply.
const STACK: usize = 16 * 1024 * 1024;
/// The most missing values that one event names.
const NAMED: usize = 3;

/// The reason that templates cannot be rendered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Failed {
    /// The reason, in one sentence.
    pub(super) why: String,
    /// Whether a retry may help.
    pub(super) recoverable: bool,
}

/// The notification that a running task needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum TemplateChange {
    /// Restart the task.
    Restart,
    /// Send signals, then run programs in the task's environment.
    Tell {
        /// Names of the signals.
        signals: Vec<String>,
        /// The programs to run.
        scripts: Vec<Script>,
    },
}

/// The state of one template.
struct Item {
    spec: Spec,
    note: Note,
    /// The digest of the current text; `None` before the first rendering.
    says: Option<Digest>,
    /// The environment variables that it renders.
    variables: BTreeMap<String, String>,
    needs: BTreeSet<Need>,
    missing: BTreeSet<Need>,
    /// Whether this agent rendered the template, not only an earlier one.
    fresh: bool,
    /// Whether the template must be rendered.
    dirty: bool,
    /// The time of the next rendering after changes have stopped for a while, and the latest time.
    calm: Option<(Instant, Instant)>,
}

/// The templates of one task.
pub(super) struct TaskTemplates {
    alloc: AllocState,
    task: String,
    places: Places,
    items: Vec<Item>,
    feed: Feed,
    env: Arc<BTreeMap<String, String>>,
    region: String,
    /// The last reported text about missing values.
    reported: Option<String>,
    /// The time at which the task is notified of changes.
    due: Option<Instant>,
    /// Programs that run after the first start.
    first: Vec<Script>,
}

impl std::fmt::Debug for TaskTemplates {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // The rendered text may be secret.
        f.debug_struct("TaskTemplates").field("task", &self.task).finish_non_exhaustive()
    }
}

impl TaskTemplates {
    /// Returns the templates of a task; `None` if it has none.
    pub(super) fn new(
        link: &Link,
        planner: &Planner,
        alloc: &AllocState,
        plan: &Plan,
    ) -> Result<Option<Self>, Failed> {
        if plan.task().templates.is_empty() {
            return Ok(None);
        }
        let places = Places::new(plan.dirs().clone(), plan.has_own_root(), planner.users_of(alloc));
        let mut this = Self {
            alloc: alloc.clone(),
            task: plan.name.clone(),
            feed: Feed::new(link.clone(), alloc.id(), plan.name.clone(), places.clone()),
            places,
            items: Vec::new(),
            env: Arc::default(),
            region: planner.region.clone(),
            reported: None,
            due: None,
            first: Vec::new(),
        };
        let notes = note::load(plan.dirs());
        for (i, spec) in this.specs(plan)?.into_iter().enumerate() {
            this.items.push(Item {
                note: notes.get(i).cloned().unwrap_or_default(),
                spec,
                says: None,
                variables: BTreeMap::new(),
                needs: BTreeSet::new(),
                missing: BTreeSet::new(),
                fresh: false,
                dirty: true,
                calm: None,
            });
        }
        this.env = Arc::new(plan.template_env().clone());
        Ok(Some(this))
    }

    fn specs(&self, plan: &Plan) -> Result<Vec<Spec>, Failed> {
        let read = |(i, block)| {
            Spec::read(block, |path| plan.client_text(path), |text| plan.text(text))
                .map_err(|why| Failed { why: format!("template {}: {why}", i + 1), recoverable: false })
        };
        plan.task().templates.iter().enumerate().map(read).collect()
    }

    /// Prepares a start: reads templates from files, and marks templates for rendering if the environment changed.
    /// The last argument marks all of them in any case.
    pub(super) fn begin(&mut self, plan: &Plan, anew: bool) -> Result<(), Failed> {
        let env = plan.template_env();
        let anew = anew || *self.env != *env;
        self.env = Arc::new(env.clone());
        self.reported = None;
        for (i, spec) in self.specs(plan)?.into_iter().enumerate() {
            let Some(item) = self.items.get_mut(i) else { continue };
            if anew || item.spec.destination != spec.destination {
                item.dirty = true;
                item.note.clock = None;
            }
            item.spec = spec;
        }
        self.read_sources()
    }

    fn read_sources(&mut self) -> Result<(), Failed> {
        for item in &mut self.items {
            let Some(source) = &item.spec.source else { continue };
            // Another task of the group may create the file before the next attempt.
            let failed = |why: String| Failed { why, recoverable: true };
            let bytes = self.places.read(source).map_err(failed)?;
            let bytes = bytes.ok_or_else(|| failed(format!("the template \"{source}\" does not exist")))?;
            let text = String::from_utf8(bytes)
                .map_err(|_| failed(format!("the template \"{source}\" is not UTF-8 text")))?;
            // Text from a file is not part of the specification, so it is compared here.
            if item.says.is_some() && item.note.source.as_ref() != Some(&Digest::new(text.as_bytes())) {
                item.dirty = true;
                item.note.clock = None;
            }
            item.note.source = Some(Digest::new(text.as_bytes()));
            item.spec.template.text = text;
        }
        Ok(())
    }

    /// Renders all templates, and waits for missing data. May be dropped at any time.
    pub(super) async fn ready(&mut self) -> Result<(), Failed> {
        loop {
            self.render_dirty(true).await?;
            if self.items.iter().all(|item| item.says.is_some() && !item.dirty) {
                break;
            }
            self.tell_missing();
            let news = self.feed.news().await;
            self.mark(&news, false);
        }
        if self.items.iter().all(|item| item.note.reported.is_none()) {
            self.first = self
                .items
                .iter()
                .filter_map(|item| match &item.spec.change {
                    ChangeMode::Script(script) if script.on_first_render => Some(script.clone()),
                    _ => None,
                })
                .collect();
        }
        self.carried_out();
        Ok(())
    }

    /// Returns the variables that the templates add to the task's environment.
    pub(super) fn variables(&self) -> BTreeMap<String, String> {
        self.items.iter().flat_map(|item| item.variables.clone()).collect()
    }

    /// Records that the task was notified of the current text.
    pub(super) fn carried_out(&mut self) {
        self.due = None;
        for item in &mut self.items {
            item.note.reported = item.says.or(item.note.reported);
        }
        let notes: Vec<Note> = self.items.iter().map(|item| item.note.clone()).collect();
        if let Err(error) = note::store(self.places.dirs(), &notes) {
            tracing::warn!(task = %self.task, %error, "the record of the templates cannot be stored");
        }
    }

    /// Restores the templates that an earlier agent rendered for a running task.
    pub(super) fn adopt(link: &Link, planner: &Planner, alloc: &AllocState, plan: &Plan) -> Option<Self> {
        let taken = Self::new(link, planner, alloc, plan).and_then(|templates| match templates {
            Some(mut templates) => {
                templates.read_sources()?;
                for item in &mut templates.items {
                    let there = || templates.places.read(&item.spec.destination).ok().flatten();
                    item.note.reported =
                        item.note.reported.or_else(|| there().map(|bytes| Digest::new(&bytes)));
                    item.says = item.note.reported;
                    if item.spec.once && item.says.is_some() {
                        item.dirty = false;
                        let text =
                            there().and_then(|bytes| String::from_utf8(bytes).ok()).unwrap_or_default();
                        item.variables = match item.spec.env {
                            true => env_file::parse(&text).unwrap_or_default(),
                            false => BTreeMap::new(),
                        };
                    }
                }
                tracing::info!(task = %plan.name, "the templates of a running task were restored");
                Ok(Some(templates))
            }
            None => Ok(None),
        });
        taken.unwrap_or_else(|failed| {
            let why = failed.why;
            tracing::warn!(task = %plan.name, why, "the templates of a running task cannot be restored");
            None
        })
    }

    /// Keeps the templates up to date until the task needs a notification. May be dropped at any time; the caller
    /// confirms the notification with [`TaskTemplates::carried_out`].
    pub(super) async fn changed(&mut self) -> TemplateChange {
        if !self.first.is_empty() {
            return TemplateChange::Tell { signals: Vec::new(), scripts: std::mem::take(&mut self.first) };
        }
        loop {
            while let Err(failed) = self.render_dirty(false).await {
                // The files of the last rendering stay valid.
                let words = format!("Template failed to re-render: {}", failed.why);
                self.say(words);
            }
            self.tell_missing();
            if self.due.is_none() && self.change().is_some() {
                self.due = Some(Instant::now() + self.splay());
            }
            let calm =
                self.items.iter().filter_map(|item| item.calm.map(|(calm, last)| calm.min(last))).min();
            let until = |at: Option<Instant>| async move {
                match at {
                    Some(at) => sleep_until(at).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                () = until(self.due) => match self.change() {
                    Some(change) => return change,
                    // The text changed back to the last notified one.
                    None => self.due = None,
                },
                () = until(calm) => {
                    let now = Instant::now();
                    for item in &mut self.items {
                        if item.calm.is_some_and(|(calm, last)| calm.min(last) <= now) {
                            item.calm = None;
                            item.dirty = true;
                        }
                    }
                }
                news = self.feed.news() => self.mark(&news, true),
            }
        }
    }

    /// Returns the notification that the task needs, if it has not received it yet.
    fn change(&self) -> Option<TemplateChange> {
        let (mut signals, mut scripts, mut silent) = (Vec::new(), Vec::new(), true);
        for item in self.items.iter().filter(|item| item.says.is_some() && item.says != item.note.reported) {
            match &item.spec.change {
                ChangeMode::Noop => {}
                ChangeMode::Restart => return Some(TemplateChange::Restart),
                ChangeMode::Signal(signal) => {
                    if !signals.contains(signal) {
                        signals.push(signal.clone());
                    }
                    silent = false;
                }
                ChangeMode::Script(script) => {
                    scripts.push(script.clone());
                    silent = false;
                }
            }
        }
        (!silent).then_some(TemplateChange::Tell { signals, scripts })
    }

    /// Returns a random part of the longest splay of the changed templates.
    fn splay(&self) -> Duration {
        let changed = self.items.iter().filter(|item| item.says != item.note.reported);
        let longest = changed.map(|item| item.spec.splay).max().unwrap_or_default();
        longest.mul_f64(rand::random::<f64>())
    }

    /// Marks the templates that read changed data.
    fn mark(&mut self, news: &BTreeSet<Need>, calmly: bool) {
        let now = Instant::now();
        for item in &mut self.items {
            let done = item.says.is_some();
            if item.needs.is_disjoint(news) || (done && item.spec.once) {
                continue;
            }
            if item.fresh || item.note.reported.is_none() {
                item.note.clock = None;
            }
            match item.spec.wait.filter(|_| calmly && done) {
                None => item.dirty = true,
                Some((calm, most)) => {
                    let last = item.calm.map_or(now + most, |(_, last)| last);
                    item.calm = Some((now + calm, last));
                }
            }
        }
    }

    /// Renders all marked templates, until no more can be rendered.
    async fn render_dirty(&mut self, starting: bool) -> Result<(), Failed> {
        loop {
            let mut rendered_any = false;
            for i in 0..self.items.len() {
                if !self.items[i].dirty {
                    continue;
                }
                let failed = match self.render(i).await {
                    // The text differs from the text of an earlier agent: render it again with a new time and seed.
                    Ok(true) => self.render(i).await.err(),
                    rendered => rendered.err(),
                };
                // Without the missing data, another attempt cannot succeed.
                rendered_any = true;
                self.items[i].dirty = false;
                if let Some(failed) = failed {
                    self.items[i].dirty = starting;
                    return Err(failed);
                }
            }
            if !rendered_any {
                return Ok(());
            }
            let needed = self.items.iter().flat_map(|item| item.needs.iter().cloned()).collect();
            let known = self.feed.want(needed);
            self.mark(&known, false);
        }
    }

    /// Renders one template. Returns whether it must be rendered again.
    async fn render(&mut self, i: usize) -> Result<bool, Failed> {
        let item = &mut self.items[i];
        // A restarted agent uses the recorded time and random seed of the earlier agent.
        let (now, seed) = *item.note.clock.get_or_insert_with(|| (clock::now(), rand::random()));
        let inputs = Inputs {
            env: Arc::clone(&self.env),
            namespace: self.alloc.alloc().namespace.clone(),
            region: self.region.clone(),
            found: Arc::clone(&self.feed.found),
            files: Arc::clone(&self.feed.files),
            now,
            seed,
            stop: Arc::new(AtomicBool::new(false)),
        };
        let name = item.spec.destination.clone();
        let Rendered { text, needs, missing } =
            run(item.spec.template.clone(), inputs).await.map_err(|fault| Failed {
                recoverable: matches!(fault, Fault::Failed(_)),
                why: reported(&name, &fault),
            })?;
        item.needs = needs;
        item.missing = missing;
        if !item.missing.is_empty() {
            return Ok(false);
        }
        let digest = Digest::new(text.as_bytes());
        if !item.fresh {
            item.fresh = true;
            if item.note.reported.is_some_and(|reported| reported != digest) {
                item.note.clock = None;
                return Ok(true);
            }
        }
        if item.spec.env {
            let fault = |error| Failed { why: format!("\"{name}\": {error}"), recoverable: true };
            item.variables = env_file::parse(&text).map_err(fault)?;
        }
        let access =
            Access { mode: item.spec.mode, owner: Owner { uid: item.spec.owner.0, gid: item.spec.owner.1 } };
        let places = self.places.clone();
        let wrote = tokio::task::spawn_blocking(move || places.write(&name, text.as_bytes(), access)).await;
        let wrote = wrote.unwrap_or_else(|_| Err("the agent ends".to_owned()));
        wrote.map_err(|why| Failed { why, recoverable: true })?;
        item.says = Some(digest);
        Ok(false)
    }

    /// Reports the missing data, when it became known or changed.
    fn tell_missing(&mut self) {
        // Requests without an answer yet are not reported.
        if self.feed.is_waiting() && self.feed.unreachable.is_none() {
            return;
        }
        let missing: BTreeSet<&Need> = self.items.iter().flat_map(|item| &item.missing).collect();
        if missing.is_empty() {
            self.reported = None;
            return;
        }
        let named = missing.iter().take(NAMED).map(|need| {
            let name = need.describe(&self.region);
            self.feed.denied(need).map_or(name.clone(), |why| format!("{name} ({why})"))
        });
        let mut words = format!("Missing: {}", named.collect::<Vec<_>>().join(", "));
        if missing.len() > NAMED {
            words.push_str(&format!(", and {} more", missing.len() - NAMED));
        }
        if let Some(why) = &self.feed.unreachable {
            words.push_str(&format!(" (the servers do not tell: {why})"));
        }
        self.say(words);
    }

    fn say(&mut self, words: String) {
        if self.reported.as_ref() != Some(&words) {
            self.alloc.emit(&self.task, TaskEvent::new(event::TEMPLATE, clock::now()).message(&words));
            self.reported = Some(words);
        }
    }
}

/// Returns the fault with the name of its template.
fn reported(name: &str, fault: &Fault) -> String {
    format!("\"{name}\": {fault}")
}

/// Renders on a separate thread, which is stopped on timeout.
async fn run(template: caravan_templates::Template, inputs: Inputs) -> Result<Rendered, Fault> {
    let stop = Arc::clone(&inputs.stop);
    let (reply, mut answer) = tokio::sync::oneshot::channel();
    let work = move || {
        // The receiver may be dropped.
        let _ = reply.send(render(&template, &inputs));
    };
    let failed = |why: &str| Fault::Failed(why.to_owned());
    std::thread::Builder::new()
        .name("template".to_owned())
        .stack_size(STACK)
        .spawn(work)
        .map_err(|error| failed(&format!("no thread can be started for it: {error}")))?;
    let answered = match timeout(RENDER, &mut answer).await {
        Ok(answered) => answered,
        Err(_) => {
            stop.store(true, Ordering::Relaxed);
            answer.await
        }
    };
    answered.unwrap_or_else(|_| Err(failed("it ended without a result")))
}
