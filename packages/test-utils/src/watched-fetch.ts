/** A `fetch` that reports how much of a response was read. Runs in browsers, too. */

/** The header by which a `FakeHub` names a response. */
export const responseIdHeader = 'x-response-id';

/**
 * @param report gets 0 for a response, then the number of bytes that the reader has received. A failing stream drops unread bytes, so
 *   a server that is to lose a connection after some bytes must wait until they are read.
 */
export function watchedFetch(report: (responseId: string, numBytes: number) => void): typeof fetch {
  return async (input, init) => {
    const response = await fetch(input, init);
    const id = response.headers.get(responseIdHeader);
    if (id === null || response.body === null) return response;
    const { status, headers, url } = response;
    report(id, 0);
    // transforms a chunk only when it is asked for
    const watch = new TransformStream<Uint8Array, Uint8Array>({
      transform(chunk, controller) {
        controller.enqueue(chunk);
        report(id, chunk.byteLength);
      },
    });
    const watched = new Response(response.body.pipeThrough(watch), { status, headers });
    return Object.defineProperty(watched, 'url', { value: url });
  };
}
