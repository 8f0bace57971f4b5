// A step for a shared library (vars/memgate.groovy):
//   memgate('ctest --test-dir build --output-on-failure')
// The page (HTML Publisher) needs its own script: Jenkins' default content policy forbids every one, so it is also archived.
def call(String command = '') {
    try {
        sh "memgate run ${command ? '-- ' + command : ''}"
    } finally {
        sh 'memgate report --all memgate-reports'
        junit testResults: 'memgate-reports/junit.xml', allowEmptyResults: true
        archiveArtifacts artifacts: '.memgate/latest/**, memgate-reports/**', allowEmptyArchive: true
    }
}
