/** Lists of models of all servers as one. */
import { isRecord } from '@winnow/tensor';
import type { FastifyReply } from 'fastify';
import { fieldsOf, type RoutedCall } from './call.js';
import { noUpstream } from './errors.js';
import { readWhole } from './read-whole.js';
import type { Upstream } from './upstream.js';

const maxListBytes = 16 * 2 ** 20;

/**
 * An answer with the models of all servers; the answer of the first server if no server returns a list, for example
 * because the API key is wrong.
 */
export async function mergedList(
  { method, path, headers }: RoutedCall,
  upstreams: readonly Upstream[],
  reply: FastifyReply,
  signal: AbortSignal,
): Promise<Buffer | object> {
  const settled = await Promise.allSettled(
    upstreams.map(async (upstream) => {
      const response = await upstream.send({ method, path, headers, signal });
      const { bytes, hasMore } = await readWhole(response, maxListBytes);
      if (hasMore) response.destroy();
      return { response, text: Buffer.concat(bytes) };
    }),
  );
  signal.throwIfAborted();
  const answers = settled.flatMap((each) => (each.status === 'fulfilled' ? [each.value] : []));
  const [first] = answers;
  if (first === undefined) throw noUpstream('a list of models');
  const lists = answers.filter(({ response }) => response.statusCode === 200).map(({ text }) => fieldsOf(text));
  const field = path.startsWith('/api/') ? 'models' : 'data';
  const merged = new Map<unknown, unknown>();
  for (const list of lists) {
    for (const model of (Array.isArray(list[field]) ? list[field] : []).filter(isRecord)) {
      const id = model['id'] ?? model['name'];
      if (!merged.has(id)) merged.set(id, model);
    }
  }
  if (lists.length > 0) return { ...lists[0], [field]: [...merged.values()] };
  void reply
    .status(first.response.statusCode ?? 502)
    .type(first.response.headers['content-type'] ?? 'application/json');
  return first.text;
}
