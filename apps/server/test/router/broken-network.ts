/** A network that breaks: a TCP proxy in front of a real server that cuts connections. */
import { once } from 'node:events';
import { connect, createServer, type AddressInfo, type Socket } from 'node:net';

export interface BrokenNetwork {
  readonly url: string;
  /** Bytes of the body of an answer to POST after which the connection is cut; -1: before its headers, Infinity: never. */
  cutAfterBytes: number;
  close(): Promise<void>;
}

export async function breakNetwork(serverUrl: string): Promise<BrokenNetwork> {
  const { port, hostname } = new URL(serverUrl);
  const sockets = new Set<Socket>();
  const server = createServer((client) => {
    const upstream = connect(Number(port), hostname);
    let answer: Buffer | undefined;
    client.on('data', (bytes) => {
      if (/^(POST|GET) /.test(bytes.toString('latin1')))
        answer = bytes.toString('latin1', 0, 4) === 'POST' ? Buffer.alloc(0) : undefined;
      upstream.write(bytes);
    });
    upstream.on('data', (bytes) => {
      const before = answer?.byteLength ?? 0;
      if (answer !== undefined) answer = Buffer.concat([answer, bytes]);
      const { cutAfterBytes } = network;
      const bodyBegin = answer?.indexOf('\r\n\r\n') ?? -1;
      const allowed = cutAfterBytes < 0 ? 0 : bodyBegin < 0 ? Infinity : bodyBegin + 4 + cutAfterBytes;
      if (answer === undefined || answer.byteLength < allowed) {
        client.write(bytes);
        return;
      }
      client.end(bytes.subarray(0, Math.max(0, allowed - before)));
      upstream.destroy();
    });
    for (const [socket, other] of [
      [client, upstream],
      [upstream, client],
    ] as const) {
      sockets.add(socket);
      socket.on('error', () => {});
      socket.on('close', () => {
        sockets.delete(socket);
        other.destroySoon();
      });
    }
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  const network: BrokenNetwork = {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    cutAfterBytes: Infinity,
    async close() {
      for (const socket of sockets) socket.destroy();
      server.close();
      await once(server, 'close');
    },
  };
  return network;
}
