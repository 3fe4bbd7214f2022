/** `/tokenize`, `/detokenize` and `/apply-template`: what a model reads, without running it. */
import { isUtf8 } from 'node:buffer';
import type { FastifyInstance } from 'fastify';
import { runSliced } from '@winnow/engine';
import { answers } from '../http/answers.js';
import { badRequest } from '../http/api-error.js';
import type { GenerativeModel } from '../options.js';
import { chooseGenerative } from '../requests/choose-model.js';
import { chatRequestOf } from '../requests/chat-request.js';
import { preparedTurn } from '../requests/prepared-chat.js';
import { beforeSlot } from '../requests/respond.js';
import type { ServerContext } from '../requests/server-context.js';
import type { ApplyTemplateRequest, DetokenizeRequest, TokenizeRequest, TokenizeResponse } from '../schemas/tokens.js';

export function registerTokenRoutes(app: FastifyInstance, context: ServerContext): void {
  registerTokenize(app, context);
  registerDetokenize(app, context);
  registerApplyTemplate(app, context);
}

const describe = (operationId: string, summary: string, name: string): { schema: object } => ({
  schema: {
    operationId,
    summary,
    tags: ['Tokens'],
    body: { $ref: `${name}Request#` },
    response: answers(`${name}Response`),
  },
});

function registerTokenize(app: FastifyInstance, context: ServerContext): void {
  const schema = describe('tokenize', 'Turns a text into tokens.', 'Tokenize');
  app.post('/tokenize', schema, async (request, reply): Promise<TokenizeResponse> => {
    const body = request.body as TokenizeRequest;
    const { tokenizer } = (await chooseGenerative(context, body.model, reply)).model;
    const encoding = tokenizer.encodeSliced(body.content, { addSpecialTokens: body.add_special === true });
    const ids = await beforeSlot(context, reply, ({ signal }) => runSliced(encoding, signal));
    if (body.with_pieces !== true) return { tokens: Array.from(ids) };
    return { tokens: Array.from(ids, (id) => ({ id, piece: pieceOf(id, tokenizer) })) };
  });
}

function pieceOf(id: number, tokenizer: GenerativeModel['tokenizer']): string | number[] {
  const bytes = tokenizer.tokenBytes(id);
  return isUtf8(bytes) ? new TextDecoder().decode(bytes) : Array.from(bytes);
}

function registerDetokenize(app: FastifyInstance, context: ServerContext): void {
  app.post('/detokenize', describe('detokenize', 'Turns tokens into text.', 'Detokenize'), async (request, reply) => {
    const { model, tokens } = request.body as DetokenizeRequest;
    const { tokenizer } = (await chooseGenerative(context, model, reply)).model;
    const wrong = tokens.findIndex((id) => id >= tokenizer.vocabSize);
    if (wrong >= 0) throw badRequest(`tokens[${wrong}]`, `must be below ${tokenizer.vocabSize}`, 'invalid_value');
    return { content: tokenizer.decode(tokens) };
  });
}

function registerApplyTemplate(app: FastifyInstance, context: ServerContext): void {
  const schema = describe('applyTemplate', 'The prompt that a conversation becomes.', 'ApplyTemplate');
  app.post('/apply-template', schema, async (request, reply) => {
    const body = request.body as ApplyTemplateRequest;
    const entry = await chooseGenerative(context, body.model, reply);
    const turn = await beforeSlot(context, reply, (options) => preparedTurn(chatRequestOf(body), entry, options));
    // rows of images have negative ids and no text
    const text = turn.prompt.filter((id) => id >= 0);
    return { prompt: entry.model.tokenizer.decode(text), tokens: Array.from(turn.prompt) };
  });
}
