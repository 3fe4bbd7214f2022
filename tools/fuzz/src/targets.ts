/** The targets: each is a file of `test/targets/` with an export `createTarget`. */
export const targetNames: readonly string[] = [
  ...['gguf', 'safetensors', 'onnx', 'tokenizer', 'config', 'session', 'sidecar', 'policy-file'],
  ...['gbnf', 'json-schema', 'template', 'answer', 'http-source', 'server', 'event-stream', 'image', 'torch'],
];
