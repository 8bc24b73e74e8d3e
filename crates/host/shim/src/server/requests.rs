//! Handles the requests of clients.

use super::{Server, io};
use crate::launch::{Stdio, launch};
use crate::protocol::{Opening, Reply, Request, UsageReport, VERSION};
use crate::session::Exec;
use crate::spec::CommandSpec;
use crate::usage::processes;
use crate::{Error, Result};
use caravan_sys::process::PidFd;
use caravan_sys::time::BootTime;
use rustix::pipe::{PipeFlags, pipe_with};
use std::os::fd::AsFd;
use std::time::Duration;

impl Server {
    /// Handles all complete requests that a client has sent.
    pub(super) fn answer(&mut self, index: usize) {
        loop {
            let client = &mut self.clients[index];
            if !client.greeted {
                match client.input.take::<Opening>() {
                    Ok(Some(opening)) if opening.version == VERSION => {
                        client.greeted = true;
                        client.send(&Reply::Welcome {
                            task_id: self.spec.task_id.clone(),
                            shim: self.started.shim,
                            task: self.started.task,
                        });
                    }
                    Ok(Some(opening)) => {
                        let error = Error::Version { theirs: opening.version, ours: VERSION };
                        client.send(&Reply::Failed { message: error.to_string() });
                        client.gone = true;
                        return;
                    }
                    Ok(None) => return,
                    Err(_) => {
                        client.gone = true;
                        return;
                    }
                }
                continue;
            }
            match client.input.take::<Request>() {
                Ok(Some(request)) => {
                    if let Some(reply) = self.carry_out(index, request) {
                        self.clients[index].send(&reply);
                    }
                }
                Ok(None) => return,
                Err(error) => {
                    client.send(&Reply::Failed { message: error.to_string() });
                    client.gone = true;
                    return;
                }
            }
        }
    }

    fn carry_out(&mut self, index: usize, request: Request) -> Option<Reply> {
        let failed = |message: String| Some(Reply::Failed { message });
        match request {
            Request::Status => Some(Reply::Status { running: self.ended.is_none() }),
            Request::Wait => {
                self.clients[index].waiting += 1;
                None
            }
            Request::Signal { signal } => match self.task.send_signal(signal) {
                Ok(true) if self.ended.is_none() => Some(Reply::Done),
                Ok(_) => failed("the task has ended".into()),
                Err(error) => failed(caravan_sys::describe(&error)),
            },
            Request::Stop { signal, timeout_ms } => {
                self.stop(signal, Duration::from_millis(timeout_ms));
                self.clients[index].waiting += 1;
                None
            }
            Request::Usage => match self.usage() {
                Ok(usage) => Some(Reply::Usage(usage)),
                Err(error) => failed(caravan_sys::describe(&error)),
            },
            Request::Exec { .. } if self.ended.is_some() => failed("the task has ended".into()),
            Request::Exec { .. } if self.clients[index].exec.is_some() => {
                failed("a program runs on this connection already".into())
            }
            Request::Exec { command, tty } => match self.exec(&command, tty) {
                Ok(exec) => {
                    self.clients[index].exec = Some(exec);
                    None
                }
                Err(error) => failed(caravan_sys::describe(&error)),
            },
            Request::Resize { rows, columns } => {
                if let Some(exec) = &self.clients[index].exec {
                    exec.resize(rows, columns);
                }
                None
            }
            Request::Input { data } => match &mut self.clients[index].exec {
                Some(exec) => exec.feed(&data).err().and_then(|message| failed(message.into())),
                // The program has ended, and its result is being sent.
                None => None,
            },
        }
    }

    fn exec(&self, command: &[String], tty: bool) -> Result<Exec> {
        let Some((program, args)) = command.split_first() else {
            return Err(Error::Launch("the command to run is empty".into()));
        };
        let command =
            CommandSpec { program: program.clone(), args: args.to_vec(), ..self.spec.command.clone() };
        if tty {
            return self.exec_on_terminal(&command);
        }
        let pipe = || pipe_with(PipeFlags::CLOEXEC).map_err(io("make a pipe"));
        let ((input_far, input), (output, output_far), (error, error_far)) = (pipe()?, pipe()?, pipe()?);
        for near in [&input, &output, &error] {
            rustix::io::ioctl_fionbio(near, true).map_err(io("set up a pipe"))?;
        }
        let stdio = Stdio {
            input: input_far.as_fd(),
            output: output_far.as_fd(),
            error: error_far.as_fd(),
            tty: false,
        };
        let launched = launch(&self.spec, &self.around, &command, &stdio)?;
        let process = PidFd::open(launched.pid)?
            .ok_or_else(|| Error::Launch("the program's process vanished".into()))?;
        Ok(Exec::new(process, input, output, error))
    }

    /// Runs a program on a new terminal.
    fn exec_on_terminal(&self, command: &CommandSpec) -> Result<Exec> {
        let terminal = nix::pty::openpty(None, None).map_err(io("make a terminal"))?;
        for end in [&terminal.master, &terminal.slave] {
            rustix::io::fcntl_setfd(end, rustix::io::FdFlags::CLOEXEC).map_err(io("set up a terminal"))?;
        }
        rustix::io::ioctl_fionbio(&terminal.master, true).map_err(io("set up a terminal"))?;
        let far = terminal.slave.as_fd();
        let stdio = Stdio { input: far, output: far, error: far, tty: true };
        let launched = launch(&self.spec, &self.around, command, &stdio)?;
        let process = PidFd::open(launched.pid)?
            .ok_or_else(|| Error::Launch("the program's process vanished".into()))?;
        Exec::on_terminal(process, terminal.master).map_err(io("set up a terminal"))
    }

    fn usage(&self) -> Result<UsageReport> {
        let Some(cgroup) = self.around.cgroup() else {
            return Err(Error::Launch("the task has no control group to measure it by".into()));
        };
        let usage = cgroup.usage()?;
        let ns = |d: Duration| u64::try_from(d.as_nanos()).unwrap_or(u64::MAX);
        Ok(UsageReport {
            cpu_total_ns: ns(usage.cpu_total),
            cpu_user_ns: ns(usage.cpu_user),
            cpu_system_ns: ns(usage.cpu_system),
            throttled_periods: usage.throttled_periods,
            throttled_ns: ns(usage.throttled),
            memory: usage.memory,
            memory_peak: usage.memory_peak,
            rss: usage.rss,
            cache: usage.cache,
            swap: usage.swap,
            pids: usage.pids,
            boot_time_ns: BootTime::now().0,
            processes: processes(&cgroup.pids()?),
            pressure: usage.pressure.into(),
        })
    }
}
