//! What stands between the store and its server in tests: a proxy that cuts and stalls, and a server that is none.

use std::collections::VecDeque;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;

/// What becomes of a connection.
#[derive(Debug, Clone, Copy)]
pub(super) enum Fate {
    /// Cut after so many bytes of replies.
    Cut(usize),
    /// Held open, but silent after so many bytes of replies.
    Stall(usize),
}

/// A proxy; its threads end with the process.
#[derive(Debug)]
pub(super) struct Proxy {
    port: u16,
    /// One for each further connection; after them all go well.
    fates: Arc<Mutex<VecDeque<Fate>>>,
}

impl Proxy {
    pub(super) fn start(server: (&'static str, u16)) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        let fates = Arc::new(Mutex::new(VecDeque::new()));
        let shared = Arc::clone(&fates);
        thread::spawn(move || {
            for client in listener.incoming() {
                let fate = shared.lock().unwrap().pop_front();
                forward(client.unwrap(), TcpStream::connect(server).unwrap(), fate);
            }
        });
        Self { port, fates }
    }

    pub(super) fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    /// The next connections end like this, one each.
    pub(super) fn doom(&self, fates: impl IntoIterator<Item = Fate>) {
        self.fates.lock().unwrap().extend(fates);
    }

    /// All further connections go well.
    pub(super) fn forget_fates(&self) {
        self.fates.lock().unwrap().clear();
    }

    /// How many fates have met no connection yet.
    pub(super) fn fates_left(&self) -> usize {
        self.fates.lock().unwrap().len()
    }
}

fn forward(client: TcpStream, server: TcpStream, fate: Option<Fate>) {
    let (mut requests, mut to_server) = (client.try_clone().unwrap(), server.try_clone().unwrap());
    // Either side may be gone at any time, which ends the copy and is no failure of the test.
    thread::spawn(move || {
        let _ = std::io::copy(&mut requests, &mut to_server);
        let _ = to_server.shutdown(Shutdown::Both);
    });
    thread::spawn(move || {
        let (mut replies, mut to_client) = (server, client);
        to_client.set_nodelay(true).unwrap();
        let copied = match fate {
            None => std::io::copy(&mut replies, &mut to_client),
            Some(Fate::Cut(bytes)) => std::io::copy(&mut (&mut replies).take(bytes as u64), &mut to_client),
            Some(Fate::Stall(bytes)) => std::io::copy(&mut (&mut replies).take(bytes as u64), &mut to_client)
                .and_then(|_| std::io::copy(&mut replies, &mut std::io::sink())),
        };
        let _ = copied;
        let _ = to_client.shutdown(Shutdown::Both);
        let _ = replies.shutdown(Shutdown::Both);
    });
}

/// A server that gives one answer to every `SET` and is otherwise in order; returns its address.
pub(super) fn start_server_that_answers_set(answer: &'static str) -> String {
    let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let url = format!("redis://{}", listener.local_addr().unwrap());
    thread::spawn(move || {
        for client in listener.incoming() {
            let client = client.unwrap();
            thread::spawn(move || answer_commands(client, answer));
        }
    });
    url
}

fn answer_commands(client: TcpStream, answer: &str) {
    let mut replies = client.try_clone().unwrap();
    let mut lines = BufReader::new(client).lines();
    let mut next = || lines.next().and_then(Result::ok);
    while let Some(count) = next() {
        let words_len: usize = count.strip_prefix('*').unwrap().parse().unwrap();
        let words: Vec<String> = (0..words_len).filter_map(|_| next().and_then(|_| next())).collect();
        let reply = match words[0].as_str() {
            "GET" => "$-1\r\n",
            "INFO" => "$27\r\nmaxmemory_policy:noeviction\r\n",
            "SET" => answer,
            "DEL" => ":1\r\n",
            _ => "+OK\r\n",
        };
        if replies.write_all(reply.as_bytes()).is_err() {
            return;
        }
    }
}
