/**
 * Texts of tokens that end generation, in the spellings of published vocabularies, as llama.cpp lists them.
 * https://github.com/ggml-org/llama.cpp/blob/00ad355e009e83abf98f96a6ded7193b95763681/src/llama-vocab.cpp (load)
 */
/** Token texts that end a turn. */
export const END_OF_TURN: readonly string[] = [
  '<|eot_id|>',
  '<|im_end|>',
  '<|end|>',
  '<end_of_turn>',
  '<|endoftext|>',
  '<|end_of_text|>',
  '<EOT>',
  '_<EOT>',
  '[EOT]',
  '<\uff5cend\u2581of\u2581sentence\uff5c>',
  '<end_of_utterance>',
];

/** Token texts that end generation in any vocabulary. */
export const END_OF_GENERATION: readonly string[] = [
  ...END_OF_TURN,
  '<|return|>',
  '<|call|>',
  '<|flush|>',
  '<|calls|>',
  '</s>',
  '<|eom_id|>',
  '[EOS]',
  '<eos>',
  '<turn|>',
  '<|tool_response>',
  '[e~[',
];
