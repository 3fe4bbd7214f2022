/**
 * `--lora-scaled FILE SCALE`, rewrites llama.cpp's flag with two values to its other form, `--lora-scaled FILE:SCALE`.
 */
export function joinScaledAdapters(argv: readonly string[]): string[] {
  const joined: string[] = [];
  for (let at = 0; at < argv.length; at++) {
    const [argument, file, scale] = argv.slice(at, at + 3);
    if (argument === '--lora-scaled' && file !== undefined && scale !== undefined && isNumber(scale)) {
      joined.push(argument, `${file}:${scale}`);
      at += 2;
    } else joined.push(argument as string);
  }
  return joined;
}

function isNumber(text: string): boolean {
  return text.trim() !== '' && Number.isFinite(Number(text));
}
