//! The task that owns the state machine.

use super::Input;
use super::links::Links;
use crate::core::{Core, Notice, Output, Phase};
use crate::member::{Event, Status, View};
use crate::remembered::{Known, Remembered, Save};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{broadcast, mpsc, oneshot, watch};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// The number of inputs that are handled before a due timer.
const BURST: usize = 64;

#[derive(Debug)]
pub(super) struct Actor {
    pub(super) core: Core,
    pub(super) inputs: mpsc::Receiver<Input>,
    /// The origin of the state machine's times.
    pub(super) start: Instant,
    pub(super) links: Links,
    pub(super) view: watch::Sender<Arc<View>>,
    pub(super) events: broadcast::Sender<Event>,
    /// The receiver of contents for the file, or `None` without a data directory.
    pub(super) saves: Option<mpsc::UnboundedSender<Save>>,
    pub(super) remembered: Remembered,
}

impl Actor {
    pub(super) async fn run(mut self, cancel: CancellationToken) {
        loop {
            let due = self.start + self.core.next_due();
            // Messages precede timers: after a pause of the process, the responses to probes may wait.
            tokio::select! {
                biased;
                () = cancel.cancelled() => return,
                input = self.inputs.recv() => match input {
                    Some(input) => self.handle_burst(input),
                    None => return,
                },
                () = tokio::time::sleep_until(due) => {}
            }
            if self.now() >= self.core.next_due() {
                self.core.tick(self.now());
            }
            self.carry_out();
        }
    }

    fn now(&self) -> Duration {
        self.start.elapsed()
    }

    fn handle_burst(&mut self, first: Input) {
        self.handle(first);
        for _ in 0..BURST {
            match self.inputs.try_recv() {
                Ok(input) => self.handle(input),
                Err(_) => return,
            }
        }
    }

    fn handle(&mut self, input: Input) {
        let now = self.now();
        // The receiver of a reply may have been dropped.
        match input {
            Input::Message { message, answers } => {
                for answer in self.core.receive(now, message) {
                    let _ = answers.try_send(answer);
                }
            }
            Input::Sync(reply) => drop(reply.send(self.core.sync_message())),
            Input::Joined { answer, reply } => {
                let answers = self.core.receive(now, answer);
                self.carry_out();
                let _ = reply.send(answers);
            }
            Input::Leave(reply) => {
                self.core.leave(now);
                self.carry_out();
                let _ = reply.send(());
            }
            Input::Left(reply) => {
                self.core.left(now);
                self.carry_out();
                self.remember(Some(reply));
            }
            Input::ForceLeave { name, prune, reply } => {
                let is_known = self.core.force_leave(now, &name, prune);
                self.carry_out();
                let _ = reply.send(is_known);
            }
            Input::SetTags(tags, reply) => {
                self.core.set_tags(now, tags.to_tags());
                self.carry_out();
                let _ = reply.send(());
            }
        }
    }

    /// Executes the outputs of the state machine, and publishes the members.
    pub(super) fn carry_out(&mut self) {
        while let Some(output) = self.core.take() {
            match output {
                Output::Send { to, message } => self.links.send(to, message),
                Output::Event(event) => self.publish(event),
                Output::Notice(notice) => log(&notice),
            }
        }
        if self.view.borrow().version != self.core.version() {
            let members = self.core.members().into();
            self.view.send_replace(Arc::new(View { version: self.core.version(), members }));
            self.remember(None);
        }
    }

    fn publish(&self, event: Event) {
        let member = event.member();
        if member.id != self.core.id() {
            let (name, addr) = (&member.name, member.addr);
            match event {
                Event::Failed(_) => tracing::warn!(name, %addr, "a server failed: it does not answer"),
                Event::Updated(_) => tracing::debug!(name, %addr, "the tags of a server changed"),
                _ => tracing::info!(name, %addr, event = event.as_str(), "a member changed"),
            }
        }
        // An event may have no subscribers.
        let _ = self.events.send(event);
    }

    /// Writes the members for the next start, if they changed or a caller waits.
    fn remember(&mut self, waiting: Option<oneshot::Sender<()>>) {
        let own = self.core.id();
        let is_kept = |status| matches!(status, Status::Alive | Status::Failed | Status::Leaving);
        let view = self.view.borrow().clone();
        let kept = view.members.iter().filter(|member| member.id != own && is_kept(member.status));
        let mut members: Vec<Known> = kept
            .map(|member| Known { id: member.id, name: member.name.clone(), addr: member.addr })
            .collect();
        if members.is_empty() {
            // A server that is alone keeps the members of the time before.
            members.clone_from(&self.remembered.members);
        }
        let left = self.core.phase() == Phase::Left;
        let remembered = Remembered { epoch: self.remembered.epoch, left, members };
        if remembered == self.remembered && waiting.is_none() {
            return;
        }
        self.remembered = remembered.clone();
        // Without a file, the dropped sender ends the wait immediately.
        if let Some(saves) = &self.saves {
            let _ = saves.send((remembered, waiting));
        }
    }
}

fn log(notice: &Notice) {
    match notice {
        Notice::SameName { name, one, other } => {
            tracing::error!(name, %one, %other, "two servers have the same name: rename one of them");
        }
        Notice::OtherCluster { name, at, cluster, own } => {
            tracing::error!(
                %at,
                "server {name} belongs to cluster {cluster}, and this server to cluster {own}: they stay apart. To let one of \
                 them join the other cluster, stop the server and move its data directory away"
            );
        }
        Notice::SameId { at } => {
            tracing::error!(%at, "another server has this server's id: one data directory may be a copy");
        }
        Notice::Refuted => tracing::info!("this server was forced to leave but is alive; it stays a member"),
        Notice::Refused { name, at } => {
            tracing::warn!(name, %at, "a member was refused: invalid data, or there are too many members");
        }
    }
}
