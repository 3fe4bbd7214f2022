/**
 * Which connections serve a request at the moment. Node's own idea of an idle connection leaves out those that have not
 * sent anything yet, as browsers keep them ready: they would keep a server open that wants to close.
 */
import type { IncomingMessage, Server, ServerResponse } from 'node:http';
import type { Socket } from 'node:net';

export interface Connections {
  /** From now on connections are closed as soon as they serve no request. */
  drain(): void;
  /** Cuts all of them. */
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
      if (before !== undefined) numRequests.set(socket, before + count); // else it is closed
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
