/**
 * Runs the program of TypeDoc in each of the given folders, in one process, since loading it and the types of the language
 * takes longer than a fixture: `node typedoc-runs.mjs PROGRAM FOLDER...`. Prints a list of codes and outputs as JSON.
 */
import { pathToFileURL } from 'node:url';

const [, , program, ...folders] = process.argv;
const print = process.stdout.write.bind(process.stdout);

/** The program starts when it is imported, and ends by a call of `process.exit`. */
async function run(folder, index) {
  let output = '';
  process.chdir(folder);
  process.argv = [process.execPath, program, '--options', 'typedoc.json'];
  process.stdout.write = process.stderr.write = (text) => {
    output += text;
    return true;
  };
  const code = await new Promise((resolve) => {
    Object.assign(process, { exit: resolve });
    void import(`${pathToFileURL(program).href}?run=${index}`);
  });
  return { code, output };
}

const outcomes = [];
for (const [index, folder] of folders.entries()) outcomes.push(await run(folder, index));
print(JSON.stringify(outcomes));
