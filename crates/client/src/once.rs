//! One HTTP request over a connection, and the first bytes of the response.

use bytes::{Bytes, BytesMut};
use caravan_tls::Stream;
use http::{Request, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper_util::rt::TokioIo;

/// Sends `request` and returns the status with the first `most(status)` bytes of the body; a limit of 0 reads no body.
/// The caller limits the time.
pub(crate) async fn send(
    stream: Stream,
    request: Request<Full<Bytes>>,
    most: impl Fn(StatusCode) -> usize,
) -> Result<(StatusCode, Bytes), String> {
    let text = |error: hyper::Error| crate::error::chain(&error);
    let (mut sender, connection) =
        hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.map_err(text)?;
    let answered = async {
        let answer = sender.send_request(request).await.map_err(text)?;
        let status = answer.status();
        let most = most(status);
        let mut body = answer.into_body();
        let mut begun = BytesMut::new();
        while begun.len() < most {
            let Some(frame) = body.frame().await else { break };
            if let Ok(data) = frame.map_err(text)?.into_data() {
                begun.extend_from_slice(&data);
            }
        }
        begun.truncate(most);
        Ok((status, begun.freeze()))
    };
    tokio::pin!(connection);
    tokio::pin!(answered);
    let mut open = true;
    loop {
        tokio::select! {
            biased;
            answer = &mut answered => return answer,
            // The response also reports the end of the connection.
            _ = &mut connection, if open => open = false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::{TcpListener, TcpStream};

    #[tokio::test]
    async fn only_the_beginning_is_read() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let server = async {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut asked = vec![0; 1024];
            let read = stream.read(&mut asked).await.unwrap();
            assert!(asked[..read].starts_with(b"GET /x HTTP/1.1\r\n"));
            // The server never sends the rest, and the client does not wait for it.
            stream.write_all(b"HTTP/1.1 500 No\r\nContent-Length: 100\r\n\r\n0123456789").await.unwrap();
            stream
        };
        let client = async {
            let stream = Stream::Plain(TcpStream::connect(address).await.unwrap());
            let request = Request::get("/x").header("host", "x").body(Full::default()).unwrap();
            send(stream, request, |status| if status.is_success() { 0 } else { 4 }).await.unwrap()
        };
        let (_stream, (status, body)) = tokio::join!(server, client);
        assert_eq!((status.as_u16(), &body[..]), (500, &b"0123"[..]));
    }
}
