/** `/tokenize`, `/detokenize` and `/apply-template`, with the fields of llama.cpp's server. */
import { Type, type Static } from 'typebox';
import { promptFields } from './chat.js';
import { ModelId } from './common.js';

export const TokenizeRequest = Type.Object(
  {
    model: Type.Optional(ModelId),
    content: Type.String(),
    add_special: Type.Optional(
      Type.Boolean({ description: 'Add BOS and EOS as the tokenizer does for a prompt. Default false.' }),
    ),
    with_pieces: Type.Optional(Type.Boolean({ description: 'Return the text of each token, too. Default false.' })),
  },
  { $id: 'TokenizeRequest', additionalProperties: false },
);
export type TokenizeRequest = Static<typeof TokenizeRequest>;

const Piece = Type.Object({
  id: Type.Integer(),
  piece: Type.Union([Type.String(), Type.Array(Type.Integer({ minimum: 0, maximum: 255 }))], {
    description: 'Text, or bytes that are not UTF-8, such as parts of a character.',
  }),
});

export const TokenizeResponse = Type.Object(
  { tokens: Type.Union([Type.Array(Type.Integer()), Type.Array(Piece)]) },
  { $id: 'TokenizeResponse' },
);
export type TokenizeResponse = Static<typeof TokenizeResponse>;

export const DetokenizeRequest = Type.Object(
  { model: Type.Optional(ModelId), tokens: Type.Array(Type.Integer({ minimum: 0 })) },
  { $id: 'DetokenizeRequest', additionalProperties: false },
);
export type DetokenizeRequest = Static<typeof DetokenizeRequest>;

export const DetokenizeResponse = Type.Object({ content: Type.String() }, { $id: 'DetokenizeResponse' });

export const ApplyTemplateRequest = Type.Object(
  { model: Type.Optional(ModelId), ...promptFields },
  { $id: 'ApplyTemplateRequest', additionalProperties: false },
);
export type ApplyTemplateRequest = Static<typeof ApplyTemplateRequest>;

export const ApplyTemplateResponse = Type.Object(
  {
    prompt: Type.String({ description: 'The text of the tokens, with special tokens.' }),
    tokens: Type.Array(Type.Integer()),
  },
  { $id: 'ApplyTemplateResponse' },
);
