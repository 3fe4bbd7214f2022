/** What `npm run demo` passes to `winnow`; the gate of the README runs the same. */
const prompt = 'The captain looked at the sea and said,';
const sampling = ['-n', '100', '--temperature', '0.7', '--seed', '7'];

export const demoArguments = ['run', '-p', prompt, '--display-prompt', ...sampling, '--summary'];
