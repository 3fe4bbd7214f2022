/** The length of C++ functions, which no linter of this workspace counts. */

/** Comments, texts and preprocessor lines: braces in them open nothing. */
const ignored = /\/\*[^]*?\*\/|\/\/[^\n]*|"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])+'|^[ \t]*#[^\n]*(?:\\\n[^\n]*)*/gm;

/** What stands between the parameters of a function and its body: qualifiers, a return type, initializers of members. */
const beforeBody = /\)\s*(?:(?:const|noexcept|override|mutable|->[^;{}]*|:[^;{}]*)\s*)*$/;
const isControl = /^\s*(?:else\s+)?(?:if|for|while|switch)\b/;

/** A brace that is open: where its statement begins, and whether it is the body of a function. */
interface OpenBrace {
  readonly begin: number;
  readonly isFunction: boolean;
}

/** The longest function of a C++ file with all that it contains, lambdas too; 0 lines for a file without functions. */
export function longestCppFunction(text: string): { readonly lines: number; readonly line: number } {
  const code = text.replace(ignored, (part) => part.replaceAll(/[^\n]/g, ' '));
  const lineOf = (offset: number): number => code.slice(0, offset).split('\n').length;
  const open: OpenBrace[] = [];
  let longest = { lines: 0, line: 1 };
  let statement = 0;
  for (const { 0: sign, index } of code.matchAll(/[{};]/g)) {
    if (sign === '{') {
      const head = code.slice(statement, index);
      const begin = statement + head.length - head.trimStart().length;
      open.push({ begin, isFunction: beforeBody.test(head) && !isControl.test(head) });
    } else if (sign === '}') {
      const { begin, isFunction } = open.pop() ?? { begin: index, isFunction: false };
      const line = lineOf(begin);
      const lines = lineOf(index) - line + 1;
      if (isFunction && lines > longest.lines) longest = { lines, line };
    }
    statement = index + 1;
  }
  return longest;
}
