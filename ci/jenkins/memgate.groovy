// A step for a shared library (vars/memgate.groovy). `memgate` must be in PATH (README.md, "Install in CI").
//   memgate('ctest --test-dir build --output-on-failure')
// The page needs its own script. In HTML Publisher, Jenkins' default content policy forbids all scripts, so the page is
// also archived.
def call(String command = '') {
    // Quoted: the shell of this step neither splits nor expands it.
    def quoted = "'" + command.trim().replace("'", "'\\''") + "'"
    try {
        // A kept workspace has the reports of an earlier run. A single command runs directly, so that memgate
        // recognises Maven, for example. Several lines or commands, pipes and redirections run in a shell.
        sh "COMMAND=${quoted}" + '''
            rm -rf memgate-reports
            [ ! -L .memgate/latest ] || rm .memgate/latest
            COMMAND=$(printf '%s\\n' "$COMMAND" | sed -e :a -e '/\\\\$/N; s/\\\\\\n/ /; ta')
            case $COMMAND in
              *[[:cntrl:]"&|;<>"]*) set -- sh -ec "$COMMAND" ;;
              *) eval "set -- $COMMAND" ;;
            esac
            [ $# -eq 0 ] || set -- -- "$@"
            memgate run "$@"
        '''
    } finally {
        // An error here does not hide the failure of the tests.
        sh script: 'memgate report --all memgate-reports', returnStatus: true
        junit testResults: 'memgate-reports/junit.xml', allowEmptyResults: true
        archiveArtifacts artifacts: '.memgate/latest/**, memgate-reports/**', allowEmptyArchive: true
    }
}
