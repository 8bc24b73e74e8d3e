//! One client of the control socket, and the program that it may be running.

use crate::Result;
use crate::protocol::{FrameBuffer, Reply, encode};
use caravan_sys::process::{Exit, PidFd};
use serde::Serialize;
use std::collections::VecDeque;
use std::fs::File;
use std::io::{ErrorKind, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::time::Duration;

/// Bytes of unsent output above which no more output of the program is read for this client.
const BACKLOG: usize = 256 << 10;

/// The character Ctrl-D, which ends the input of a terminal.
const END_OF_INPUT: u8 = 4;

/// Bytes of unsent output above which the client is disconnected.
const LIMIT: usize = 64 << 20;

/// A connection.
#[derive(Debug)]
pub(crate) struct Client {
    pub(crate) stream: UnixStream,
    pub(crate) input: FrameBuffer,
    output: VecDeque<u8>,
    /// Whether the client has sent its opening.
    pub(crate) greeted: bool,
    /// The number of replies about the task's end for which the client waits.
    pub(crate) waiting: u32,
    pub(crate) exec: Option<Exec>,
    /// Whether to drop the connection.
    pub(crate) gone: bool,
}

impl Client {
    pub(crate) fn new(stream: UnixStream) -> std::io::Result<Self> {
        stream.set_nonblocking(true)?;
        Ok(Self {
            stream,
            input: FrameBuffer::default(),
            output: VecDeque::new(),
            greeted: false,
            waiting: 0,
            exec: None,
            gone: false,
        })
    }

    /// Reads all available bytes.
    pub(crate) fn read(&mut self) {
        let mut buffer = [0; 8192];
        loop {
            match self.stream.read(&mut buffer) {
                Ok(0) => {
                    self.gone = true;
                    return;
                }
                Ok(n) => self.input.push(&buffer[..n]),
                Err(e) if e.kind() == ErrorKind::WouldBlock => return,
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(_) => {
                    self.gone = true;
                    return;
                }
            }
        }
    }

    /// Queues a message and sends as much as the socket accepts.
    pub(crate) fn send<T: Serialize>(&mut self, message: &T) {
        match encode(message) {
            Ok(frame) if self.output.len() + frame.len() <= LIMIT => {
                self.output.extend(frame);
                self.flush();
            }
            _ => self.gone = true,
        }
    }

    pub(crate) fn flush(&mut self) {
        while !self.output.is_empty() {
            match self.stream.write(self.output.as_slices().0) {
                Ok(n) => drop(self.output.drain(..n)),
                Err(e) if e.kind() == ErrorKind::WouldBlock => return,
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(_) => {
                    self.gone = true;
                    return;
                }
            }
        }
    }

    /// Sends the rest, waiting at most a second for a slow client.
    pub(crate) fn finish(&mut self) {
        let patient = self
            .stream
            .set_nonblocking(false)
            .and_then(|()| self.stream.set_write_timeout(Some(Duration::from_secs(1))));
        if patient.is_ok() {
            self.flush();
        }
    }

    pub(crate) fn has_output(&self) -> bool {
        !self.output.is_empty()
    }

    pub(crate) fn is_behind(&self) -> bool {
        self.output.len() > BACKLOG
    }

    /// Moves output of the program to the client. With `to_the_end`, until the pipes are empty.
    pub(crate) fn pump_exec(&mut self, to_the_end: bool) {
        for index in 0..2 {
            while let Some(pipe) = self.exec.as_mut().and_then(|exec| exec.outputs[index].as_mut()) {
                let mut buffer = [0; 16384];
                match pipe.read(&mut buffer) {
                    Ok(0) => self.close_output(index),
                    Ok(n) => {
                        self.send(&Reply::Output { stderr: index == 1, data: buffer[..n].to_vec() });
                        if !to_the_end {
                            break;
                        }
                    }
                    Err(e) if e.kind() == ErrorKind::Interrupted => {}
                    Err(e) if e.kind() == ErrorKind::WouldBlock && !to_the_end => break,
                    Err(_) => self.close_output(index),
                }
            }
        }
    }

    fn close_output(&mut self, index: usize) {
        if let Some(exec) = &mut self.exec {
            exec.outputs[index] = None;
        }
        self.send(&Reply::OutputClosed { stderr: index == 1 });
    }

    /// Ends the program's session: sends the rest of its output, then its result.
    pub(crate) fn exec_ended(&mut self, exit: Exit) {
        self.pump_exec(true);
        self.exec = None;
        self.send(&Reply::ExecExited { exit_code: exit.code, signal: exit.signal });
    }
}

/// A program that runs for a client.
#[derive(Debug)]
pub(crate) struct Exec {
    pub(crate) process: PidFd,
    input: Option<File>,
    pending: VecDeque<u8>,
    close_input: bool,
    tty: bool,
    pub(crate) outputs: [Option<File>; 2],
}

impl Exec {
    /// Takes the shim's ends of the program's pipes, which must not block.
    pub(crate) fn new(process: PidFd, input: OwnedFd, output: OwnedFd, error: OwnedFd) -> Self {
        Self {
            process,
            input: Some(input.into()),
            pending: VecDeque::new(),
            close_input: false,
            tty: false,
            outputs: [Some(output.into()), Some(error.into())],
        }
    }

    /// Takes the shim's end of the program's terminal, which must not block.
    pub(crate) fn on_terminal(process: PidFd, master: OwnedFd) -> std::io::Result<Self> {
        let input = master.try_clone()?;
        Ok(Self {
            process,
            input: Some(input.into()),
            pending: VecDeque::new(),
            close_input: false,
            tty: true,
            outputs: [Some(master.into()), None],
        })
    }

    /// Sets the size of the program's terminal, if it has one.
    pub(crate) fn resize(&self, rows: u16, columns: u16) {
        if let (Some(terminal), true) = (&self.input, self.tty) {
            let size = rustix::termios::Winsize { ws_row: rows, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 };
            // The terminal may be closed already, which is no error.
            let _gone = rustix::termios::tcsetwinsize(terminal, size);
        }
    }

    /// Passes input to the program; empty data closes its input.
    pub(crate) fn feed(&mut self, data: &[u8]) -> Result<(), &'static str> {
        if data.is_empty() && self.tty {
            // A terminal has no end of input except this character.
            self.pending.push_back(END_OF_INPUT);
        } else if data.is_empty() {
            self.close_input = true;
        } else if self.pending.len() + data.len() > LIMIT {
            return Err("the program does not read its input");
        } else {
            self.pending.extend(data);
        }
        self.flush_input();
        Ok(())
    }

    pub(crate) fn flush_input(&mut self) {
        while let (Some(input), false) = (&mut self.input, self.pending.is_empty()) {
            match input.write(self.pending.as_slices().0) {
                Ok(n) => drop(self.pending.drain(..n)),
                Err(e) if e.kind() == ErrorKind::WouldBlock => return,
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(_) => {
                    self.pending.clear();
                    self.input = None;
                }
            }
        }
        if self.close_input && self.pending.is_empty() {
            self.input = None;
        }
    }

    /// Returns the input pipe if data waits until the program reads.
    pub(crate) fn blocked_input(&self) -> Option<&File> {
        self.input.as_ref().filter(|_| !self.pending.is_empty())
    }
}
