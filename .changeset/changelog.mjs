/** The text of changelogs: the summary of each changeset, and one line for all updated dependencies. */
export default {
  getReleaseLine({ summary }) {
    const [firstLine, ...rest] = summary.trim().split('\n');
    return [`- ${firstLine}`, ...rest.map((line) => (line === '' ? '' : `  ${line}`))].join('\n');
  },
  getDependencyReleaseLine(_changesets, dependencies) {
    if (dependencies.length === 0) return '';
    return `- Requires ${dependencies.map(({ name, newVersion }) => `${name} ${newVersion}`).join(', ')}.`;
  },
};
