/**
 * Tracks which connections are serving a request. Node does not count connections as idle that have not sent anything
 * yet, such as the spare connections of browsers; they would keep a closing server open.
 */
import type { IncomingMessage, Server, ServerResponse } from 'node:http';
import type { Socket } from 'node:net';

export interface Connections {
  /** From now on, closes connections as soon as they serve no request. */
  drain(): void;
  /** Destroys all connections. */
  destroy(): void;
}

export function trackConnections(server: Server): Connections {
  /** Requests in progress by connection. */
  const numRequests = new Map<Socket, number>();
  let isDraining = false;

  const closeIfIdle = (socket: Socket): void => {
    if (isDraining && numRequests.get(socket) === 0) socket.destroySoon();
  };
  server.on('connection', (socket: Socket) => {
    numRequests.set(socket, 0);
    socket.once('close', () => numRequests.delete(socket));
    closeIfIdle(socket);
  });
  server.on('request', ({ socket }: IncomingMessage, response: ServerResponse) => {
    const add = (count: number): void => {
      const before = numRequests.get(socket);
      if (before !== undefined) numRequests.set(socket, before + count); // otherwise it is already closed
    };
    add(1);
    response.once('close', () => {
      add(-1);
      closeIfIdle(socket);
    });
  });

  return {
    drain(): void {
      isDraining = true;
      for (const socket of numRequests.keys()) closeIfIdle(socket);
    },
    destroy(): void {
      for (const socket of numRequests.keys()) socket.destroy();
    },
  };
}
