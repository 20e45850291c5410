with cohort as (

    select customer_id, {{ dbt.date_trunc('month', 'ordered_on') }} as cohort_month from {{ ref('int_first_orders') }}

)

select c.cohort_month, {{ dbt.date_trunc('month', 'o.ordered_on') }} as month, count(distinct o.customer_id) as customers
from {{ ref('fct_orders') }} o
join cohort c on o.customer_id = c.customer_id
group by 1, 2
