/**
 * Tracks which connections are serving a request. Node does not count connections as idle that have not sent anything
 * yet, such as the spare connections of browsers; they would keep a closing server open. They also give way when there
 * are too many connections: otherwise clients that never send a request could lock out all others.
 */
import type { IncomingMessage, Server, ServerResponse } from 'node:http';
import type { Socket } from 'node:net';

export class Connections {
  /** Requests in progress by connection. */
  readonly #numRequests = new Map<Socket, number>();
  readonly #maxConnections: number;
  #isDraining = false;

  constructor(server: Server, maxConnections: number) {
    this.#maxConnections = maxConnections;
    server.on('connection', (socket: Socket) => {
      this.#makeRoom(socket);
      if (socket.destroyed) return;
      this.#numRequests.set(socket, 0);
      socket.once('close', () => this.#numRequests.delete(socket));
      this.#closeIfIdle(socket);
    });
    server.on('request', ({ socket }: IncomingMessage, response: ServerResponse) => {
      this.#count(socket, 1);
      response.once('close', () => {
        this.#count(socket, -1);
        this.#closeIfIdle(socket);
      });
    });
  }

  /** From now on, closes connections as soon as they serve no request. */
  drain(): void {
    this.#isDraining = true;
    for (const socket of this.#numRequests.keys()) this.#closeIfIdle(socket);
  }

  /** Destroys all connections. */
  destroy(): void {
    for (const socket of this.#numRequests.keys()) socket.destroy();
  }

  /** Closes the oldest connection without a request, or the new one if all others have one. */
  #makeRoom(added: Socket): void {
    if (this.#numRequests.size < this.#maxConnections) return;
    const [oldest = added] = [...this.#numRequests.keys()].filter((socket) => this.#numRequests.get(socket) === 0);
    this.#numRequests.delete(oldest);
    oldest.destroy();
  }

  #count(socket: Socket, change: number): void {
    const before = this.#numRequests.get(socket);
    if (before !== undefined) this.#numRequests.set(socket, before + change); // otherwise it is already closed
  }

  #closeIfIdle(socket: Socket): void {
    if (this.#isDraining && this.#numRequests.get(socket) === 0) socket.destroySoon();
  }
}
