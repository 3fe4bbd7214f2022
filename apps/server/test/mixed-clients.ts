/** Clients of every API that stream, hang up in the middle or ask for something invalid, as a seed says. */
import Anthropic, { BadRequestError as AnthropicBadRequest } from '@anthropic-ai/sdk';
import { createRng } from '@winnow/tensor';
import type { Random } from '@winnow/test-utils';
import { Ollama } from 'ollama';
import OpenAI, { BadRequestError } from 'openai';

/** How requests ended. */
export interface Outcomes {
  answered: number;
  hungUp: number;
  refused: number;
}

/** A request of a client: `onPiece` sees each streamed piece and says whether the client goes on reading. */
interface Request {
  readonly seed: number;
  readonly prompt: string;
  readonly maxTokens: number;
  readonly model: string;
  readonly onPiece: () => boolean;
}

/** Resolves to what ended the answer, such as `stop` or `message_stop`; to undefined when the client hung up. */
type Api = (request: Request) => Promise<string | undefined>;

/** Reads a stream until its end or until the client hangs up, which leaves it early and so aborts the request. */
async function read<T>(stream: AsyncIterable<T>, onPiece: () => boolean, endOf: (piece: T) => string | undefined) {
  let end: string | undefined;
  for await (const piece of stream) {
    end = endOf(piece) ?? end;
    if (!onPiece()) return undefined;
  }
  if (end === undefined) throw new Error('a stream stopped without its end');
  return end;
}

function openaiApis(client: OpenAI): Api[] {
  const responseEnd = /^response\.(completed|incomplete|failed)$/;
  return [
    async ({ seed, prompt, maxTokens, model, onPiece }) => {
      const messages = [{ role: 'user' as const, content: prompt }];
      const body = { model, messages, seed, max_tokens: maxTokens, stream: true as const };
      const stream = await client.chat.completions.create(body);
      return read(stream, onPiece, ({ choices }) => choices[0]?.finish_reason ?? undefined);
    },
    async ({ seed, prompt, maxTokens, model, onPiece }) => {
      const stream = await client.completions.create({ model, prompt, seed, max_tokens: maxTokens, stream: true });
      return read(stream, onPiece, ({ choices }) => choices[0]?.finish_reason ?? undefined);
    },
    async ({ prompt, maxTokens, model, onPiece }) => {
      const stream = await client.responses.create({
        model,
        input: prompt,
        max_output_tokens: maxTokens,
        stream: true,
      });
      return read(stream, onPiece, ({ type }) => (responseEnd.test(type) ? type : undefined));
    },
  ];
}

function anthropicApi(client: Anthropic): Api {
  return async ({ prompt, maxTokens, model, onPiece }) => {
    const messages = [{ role: 'user' as const, content: prompt }];
    const stream = await client.messages.create({ model, messages, max_tokens: maxTokens, stream: true });
    return read(stream, onPiece, ({ type }) => (type === 'message_stop' ? type : undefined));
  };
}

function ollamaApis(createClient: () => Ollama): Api[] {
  const hangUp = (client: Ollama, onPiece: () => boolean) => () => {
    const goesOn = onPiece();
    if (!goesOn) client.abort();
    return goesOn;
  };
  return [
    async ({ seed, prompt, maxTokens, model, onPiece }) => {
      const client = createClient();
      const messages = [{ role: 'user', content: prompt }];
      const stream = await client.chat({ model, messages, stream: true, options: { seed, num_predict: maxTokens } });
      return read(stream, hangUp(client, onPiece), ({ done, done_reason: reason }) => (done ? reason : undefined));
    },
    async ({ seed, prompt, maxTokens, model, onPiece }) => {
      const client = createClient();
      const stream = await client.generate({ model, prompt, stream: true, options: { seed, num_predict: maxTokens } });
      return read(stream, hangUp(client, onPiece), ({ done, done_reason: reason }) => (done ? reason : undefined));
    },
  ];
}

/** One client of each API of the server. */
export function streamingApis(url: string): readonly Api[] {
  const options = { apiKey: 'none', maxRetries: 0 };
  return [
    ...openaiApis(new OpenAI({ baseURL: `${url}/v1`, ...options })),
    anthropicApi(new Anthropic({ baseURL: url, ...options })),
    ...ollamaApis(() => new Ollama({ host: url })),
  ];
}

const isRefusal = (error: unknown): boolean =>
  error instanceof BadRequestError ||
  error instanceof AnthropicBadRequest ||
  (error as { status_code?: number }).status_code === 400;

/** One request: most are read to their end, one of five hangs up after a few pieces, one of ten asks for -5 tokens. */
async function ask(api: Api, random: Random, models: { finite: string; endless: string }, outcomes: Outcomes) {
  const kind = random.nextInt(10);
  const prompt = `${random.nextInt(1000)} men looked at the sea`;
  const seed = random.nextInt(1 << 20);
  if (kind === 0) {
    const end = api({ seed, prompt, maxTokens: -5, model: models.finite, onPiece: () => true });
    const error: unknown = await end.catch((reason: unknown) => reason);
    if (!isRefusal(error)) throw error instanceof Error ? error : new Error(`an invalid request got ${String(error)}`);
    outcomes.refused++;
  } else if (kind <= 2) {
    let numLeft = 1 + random.nextInt(4);
    const onPiece = (): boolean => --numLeft > 0;
    const end = await api({ seed, prompt, maxTokens: 1000, model: models.endless, onPiece });
    if (end !== undefined) throw new Error(`an endless answer ended with ${end}`);
    outcomes.hungUp++;
  } else {
    await api({ seed, prompt, maxTokens: 1 + random.nextInt(12), model: models.finite, onPiece: () => true });
    outcomes.answered++;
  }
}

/**
 * Runs `numClients` clients, each of one API, until `isOver(n)` for a client that has made n requests.
 *
 * @throws whatever a request fails with that should not
 */
export async function runClients(
  url: string,
  models: { finite: string; endless: string },
  { numClients, seed, isOver }: { numClients: number; seed: number; isOver: (numRequests: number) => boolean },
): Promise<Outcomes> {
  const apis = streamingApis(url);
  const outcomes: Outcomes = { answered: 0, hungUp: 0, refused: 0 };
  const client = async (index: number): Promise<void> => {
    const random = createRng(seed * numClients + index);
    const api = apis[index % apis.length] as Api;
    for (let n = 0; !isOver(n); n++) await ask(api, random, models, outcomes);
  };
  await Promise.all(Array.from({ length: numClients }, (_, index) => client(index)));
  return outcomes;
}
